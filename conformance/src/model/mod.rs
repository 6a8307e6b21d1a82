//! Naive reference models: the least code that can be right, sharing nothing with the product but
//! the types of questions and answers.

pub mod bucket;
pub mod image;
pub mod object;
