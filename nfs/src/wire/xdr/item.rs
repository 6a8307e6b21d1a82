//! Types that are read and written, and how a message is made of its fields.

use super::{Reader, Writer};
use crate::limits::LIST_ITEMS_MAX;
use crate::wire::WireError;

/// What can be a field of a message.
pub trait Xdr: Sized {
    /// `field` names it in errors.
    ///
    /// # Errors
    /// What `Reader` says, and `Field` for what the standard does not have.
    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, WireError>;

    fn write(&self, writer: &mut Writer);
}

/// No field at all.
impl Xdr for () {
    fn read(_: &mut Reader, _: &'static str) -> Result<Self, WireError> {
        Ok(())
    }

    fn write(&self, _: &mut Writer) {}
}

impl Xdr for u32 {
    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, WireError> {
        reader.u32(field)
    }

    fn write(&self, writer: &mut Writer) {
        writer.u32(*self);
    }
}

impl Xdr for u64 {
    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, WireError> {
        reader.u64(field)
    }

    fn write(&self, writer: &mut Writer) {
        writer.u64(*self);
    }
}

impl Xdr for bool {
    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, WireError> {
        reader.bool(field)
    }

    fn write(&self, writer: &mut Writer) {
        writer.bool(*self);
    }
}

/// Verifiers of NFS.
impl Xdr for [u8; 8] {
    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, WireError> {
        reader.array(field)
    }

    fn write(&self, writer: &mut Writer) {
        writer.array(*self);
    }
}

/// Optional data (RFC 4506 section 4.19), and unions over a boolean that have nothing for `FALSE`.
impl<T: Xdr> Xdr for Option<T> {
    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, WireError> {
        let is_there = reader.bool(field)?;
        is_there.then(|| T::read(reader, field)).transpose()
    }

    fn write(&self, writer: &mut Writer) {
        writer.bool(self.is_some());
        if let Some(item) = self {
            item.write(writer);
        }
    }
}

/// A linked list: every item says whether another one follows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct List<T>(pub Vec<T>);

impl<T: Xdr> Xdr for List<T> {
    fn read(reader: &mut Reader, field: &'static str) -> Result<Self, WireError> {
        let mut items = Vec::new();
        while reader.bool(field)? {
            if items.len() == LIST_ITEMS_MAX {
                return Err(WireError::Field(field));
            }
            items.push(T::read(reader, field)?);
        }
        Ok(Self(items))
    }

    fn write(&self, writer: &mut Writer) {
        for item in &self.0 {
            writer.bool(true);
            item.write(writer);
        }
        writer.bool(false);
    }
}

/// A structure of the standard: its fields are on the wire in this order.
macro_rules! message {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $($(#[$field_meta:meta])* pub $field:ident: $kind:ty,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Eq, PartialEq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $kind,)+
        }

        impl $crate::wire::xdr::Xdr for $name {
            fn read(
                reader: &mut $crate::wire::xdr::Reader,
                _: &'static str,
            ) -> Result<Self, $crate::wire::WireError> {
                Ok(Self {
                    $($field: $crate::wire::xdr::Xdr::read(
                        reader,
                        concat!(stringify!($name), ".", stringify!($field)),
                    )?,)+
                })
            }

            fn write(&self, writer: &mut $crate::wire::xdr::Writer) {
                $($crate::wire::xdr::Xdr::write(&self.$field, writer);)+
            }
        }

        #[cfg(test)]
        impl $crate::wire::tests::Random for $name {
            fn random(generator: &mut $crate::wire::tests::Generator) -> Self {
                Self {
                    $($field: $crate::wire::tests::Random::random(generator),)+
                }
            }
        }
    };
}

/// An enumeration of the standard with its values and names.
macro_rules! codes {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $code:literal $text:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[repr(u32)]
        pub enum $name {
            $($(#[$variant_meta])* $variant = $code,)+
        }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            #[must_use]
            pub fn code(self) -> u32 {
                self as u32
            }

            /// `None` if the standard does not have it.
            #[must_use]
            pub fn from_code(code: u32) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// As the standard names it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }

        impl $crate::wire::xdr::Xdr for $name {
            fn read(
                reader: &mut $crate::wire::xdr::Reader,
                field: &'static str,
            ) -> Result<Self, $crate::wire::WireError> {
                let code = reader.u32(field)?;
                Self::from_code(code).ok_or($crate::wire::WireError::Field(field))
            }

            fn write(&self, writer: &mut $crate::wire::xdr::Writer) {
                writer.u32(self.code());
            }
        }

        #[cfg(test)]
        impl $crate::wire::tests::Random for $name {
            fn random(generator: &mut $crate::wire::tests::Generator) -> Self {
                *generator.one_of(Self::ALL)
            }
        }
    };
}

pub(crate) use {codes, message};
