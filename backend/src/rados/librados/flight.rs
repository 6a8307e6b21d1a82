//! Operations under way, and who frees what they use.

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::symbols::{Raw, Symbols};
use super::{Code, IoCtx, check};

/// What librados uses until an operation is complete. Whoever lets go last frees it: the waiting
/// future, or librados' callback if nobody waits any more.
struct Flight<C> {
    completion: Raw,
    /// There until it is handed to the waiting future.
    cargo: Option<C>,
    io: Arc<IoCtx>,
}

// SAFETY: librados allows any thread to ask and release a completion; the cargo is used by librados
// until the completion, and by its one owner afterwards.
unsafe impl<C: Send> Send for Flight<C> {}
// SAFETY: as above: nothing of it is used through a shared reference.
unsafe impl<C: Send> Sync for Flight<C> {}

impl<C> Drop for Flight<C> {
    fn drop(&mut self) {
        // SAFETY: the operation is complete or was never submitted; nobody uses it again.
        unsafe { (self.io.cluster.symbols.aio_release)(self.completion) };
    }
}

/// The argument of the callback.
struct Landing<C> {
    flight: Option<Arc<Flight<C>>>,
    done: oneshot::Sender<()>,
}

/// An operation that librados has. Dropping it cancels nothing.
pub(in crate::rados) struct Underway<C> {
    flight: Arc<Flight<C>>,
    done: oneshot::Receiver<()>,
}

/// A completed operation: the cargo is nobody else's any more.
pub(in crate::rados) struct Done<C> {
    pub(in crate::rados) result: Result<(), Code>,
    pub(in crate::rados) version: u64,
    pub(in crate::rados) cargo: C,
}

impl<C: Send + 'static> Underway<C> {
    pub(in crate::rados) async fn wait(self) -> Done<C> {
        let landed = self.done.await;
        landed.expect("the callback tells before it goes");
        let mut flight = Arc::into_inner(self.flight).expect("the callback let go before it told");
        let symbols = flight.io.cluster.symbols;
        // SAFETY: the completion is not released yet.
        let code = unsafe { (symbols.aio_get_return_value)(flight.completion) };
        // SAFETY: as above.
        let version = unsafe { (symbols.aio_get_version)(flight.completion) };
        Done {
            result: check(code),
            version,
            cargo: flight.cargo.take().expect("taken once"),
        }
    }
}

unsafe extern "C" fn landed<C>(_completion: Raw, argument: Raw) {
    // SAFETY: the argument is the box that `launch` made for this one call.
    let Landing { flight, done } = *unsafe { Box::from_raw(argument.cast::<Landing<C>>()) };
    drop(flight);
    let _nobody_may_be_waiting_any_more = done.send(());
}

/// Makes a completion and submits an operation with it. Everything that librados will use lies in
/// `cargo` and does not move with it.
pub(super) fn launch<C: Send + 'static>(
    io: &Arc<IoCtx>,
    cargo: C,
    submit: impl FnOnce(&'static Symbols, &C, Raw) -> c_int,
) -> Result<Underway<C>, Code> {
    let symbols = io.cluster.symbols;
    let (sender, done) = oneshot::channel();
    let landing = Box::into_raw(Box::new(Landing {
        flight: None,
        done: sender,
    }));
    let mut completion = null_mut();
    // SAFETY: the box lives until `landed` takes it, or until it is taken back below.
    let made = check(unsafe {
        (symbols.aio_create_completion2)(landing.cast(), Some(landed::<C>), &raw mut completion)
    });
    let flight = Arc::new(Flight {
        completion,
        cargo: Some(cargo),
        io: Arc::clone(io),
    });
    // SAFETY: nothing was submitted yet, so the box is still ours.
    unsafe { (*landing).flight = Some(Arc::clone(&flight)) };
    let cargo = flight.cargo.as_ref().expect("just put there");
    let submitted = made.and_then(|()| check(submit(symbols, cargo, completion)));
    if let Err(code) = submitted {
        // SAFETY: librados refused the operation and never calls back.
        drop(unsafe { Box::from_raw(landing) });
        return Err(code);
    }
    Ok(Underway { flight, done })
}
