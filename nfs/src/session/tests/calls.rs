//! Calls come in whatever way the stream is cut, and go in whatever order they end.

use super::{answer, calls, connection, drain, getattr, replies};
use crate::session::connection::Poll;
use crate::session::request::Request;
use crate::wire::nfs3::Arguments;
use crate::wire::rpc::reply::{Accepted, Reply};
use crate::wire::tests::Generator;

/// Orders of the first numbers.
fn orders(count: usize) -> Vec<Vec<usize>> {
    let mut orders = vec![vec![]];
    for last in 0..count {
        orders = orders
            .into_iter()
            .flat_map(|order: Vec<usize>| {
                (0..=last).map(move |at| {
                    let mut order = order.clone();
                    order.insert(at, last);
                    order
                })
            })
            .collect();
    }
    orders
}

#[test]
fn replies_leave_in_the_order_in_which_calls_end() {
    assert_eq!(orders(4).len(), 24);
    for order in orders(4) {
        let mut connection = connection();
        for xid in 0..4 {
            connection.buffer().extend_from_slice(&getattr(xid));
        }
        let (found, next) = calls(&mut connection);
        assert!(matches!(next, Poll::Read(4)), "{next:?}");
        let mut found: Vec<_> = found.into_iter().map(Some).collect();
        assert_eq!(connection.calls(), 4);
        for at in &order {
            let (call, hold) = found[*at].take().unwrap();
            // Longer than what is copied, so that a reply has several parts.
            connection.reply(hold, answer(call.xid, vec![b'a'; 700 * at]));
        }
        let heard = replies(&drain(&mut connection, 99));
        assert_eq!(connection.calls(), 0);
        let xids: Vec<_> = heard.iter().map(|(reply, _)| reply.xid as usize).collect();
        assert_eq!(xids, order);
        for (reply, results) in heard {
            assert_eq!(reply, Reply::accepted(reply.xid, Accepted::Success));
            assert_eq!(
                results.len(),
                (4 + 700 * reply.xid as usize).next_multiple_of(4)
            );
        }
    }
}

#[test]
fn calls_survive_any_cut() {
    let stream: Vec<u8> = (0..40).flat_map(getattr).collect();
    for seed in 0..200 {
        let mut generator = Generator(seed);
        let mut connection = connection();
        let (mut at, mut xids, mut held) = (0, Vec::new(), Vec::new());
        let mut out = Vec::new();
        while xids.len() < 40 {
            let (found, next) = calls(&mut connection);
            for (call, hold) in found {
                let Request::Nfs3(Arguments::GetAttr(getattr)) = &call.request else {
                    panic!("{call:?}");
                };
                assert_eq!(getattr.object.as_bytes(), call.xid.to_be_bytes());
                xids.push(call.xid);
                held.push((call.xid, hold));
            }
            // Some of those that are under way end.
            while generator.up_to(2) > 0 && !held.is_empty() {
                let (xid, hold) = held.swap_remove(generator.up_to(held.len() - 1));
                connection.reply(hold, answer(xid, vec![0; 600]));
                out.extend(drain(&mut connection, 1 + generator.up_to(300)));
            }
            if let Poll::Read(_) = next {
                let end = stream.len().min(at + generator.up_to(400));
                connection.buffer().extend_from_slice(&stream[at..end]);
                at = end;
            }
        }
        for (xid, hold) in held {
            connection.reply(hold, answer(xid, vec![0; 600]));
        }
        out.extend(drain(&mut connection, usize::MAX));
        assert_eq!(xids, (0..40).collect::<Vec<_>>());
        let mut answered: Vec<_> = replies(&out).iter().map(|(reply, _)| reply.xid).collect();
        answered.sort_unstable();
        assert_eq!(answered, xids);
    }
}

#[test]
fn a_call_that_is_not_answered_leaves_nothing_behind() {
    let mut connection = connection();
    connection.buffer().extend_from_slice(&getattr(1));
    connection.buffer().extend_from_slice(&getattr(2));
    let (mut found, _) = calls(&mut connection);
    drop(found.remove(0));
    assert_eq!(connection.calls(), 1);
    let (call, hold) = found.remove(0);
    connection.reply(hold, answer(call.xid, Vec::new()));
    let heard = replies(&drain(&mut connection, usize::MAX));
    assert_eq!((heard.len(), heard[0].0.xid), (1, 2));
    assert_eq!(connection.calls(), 0);
}
