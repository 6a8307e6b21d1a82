//! Who asks: signatures as pure functions of message, secret and time.
