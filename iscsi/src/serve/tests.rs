//! Whole connections over streams in memory, in paused time.

mod abort;
mod commands;
mod disk;
mod hostile;
mod initiator;
mod logins;
mod loopback;
mod management;
mod several;

use std::sync::Arc;

use portico_backend::budget::Budget;
use portico_backend::connection::{Stop, StopControl, stop};
use portico_backend::gate::{GateControl, gate};

use super::{Service, ServiceParts};
use crate::stats::Stats;
use crate::target::{Access, ChapUser, Portal, Target, Targets};
use disk::Disk;
use initiator::{HOST, TARGET};

/// A node with one target and one disk.
pub(super) struct Node {
    pub(super) service: Arc<Service>,
    pub(super) disk: Arc<Disk>,
    pub(super) stop: Stop,
    pub(super) control: StopControl,
    pub(super) gate: GateControl,
    pub(super) budget: Budget,
    pub(super) window_budget: Budget,
}

impl Node {
    pub(super) fn new() -> Self {
        Self::with(|_| (), 64 << 20)
    }

    pub(super) fn with(change: impl FnOnce(&mut Target), budget_bytes: u64) -> Self {
        let disk = Disk::new(16 << 10);
        let portal = |address: &str, tag| Portal {
            address: address.parse().unwrap(),
            group_tag: tag,
            relative_port: tag,
        };
        let mut target = Target {
            name: TARGET.to_owned(),
            alias: Some("the disk".to_owned()),
            portals: vec![portal("10.0.0.1:3260", 1), portal("[fd00::1]:3260", 2)],
            access: vec![Access {
                initiator: Some(HOST.to_owned()),
                users: Vec::new(),
                identity: None,
                units: disk.units(),
            }],
        };
        change(&mut target);
        let (control, stop) = stop();
        let (gate_control, gate) = gate(true);
        let (budget, window_budget) = (Budget::new(budget_bytes), Budget::new(budget_bytes));
        let service = Service::new(ServiceParts {
            targets: Targets::new([target]),
            stats: Arc::new(Stats::default()),
            window_budget: window_budget.clone(),
            budget: budget.clone(),
            gate,
        });
        Self {
            service: Arc::new(service),
            disk,
            stop,
            control,
            gate: gate_control,
            budget,
            window_budget,
        }
    }
}

pub(super) fn user(name: &str, secret: &str) -> ChapUser {
    ChapUser {
        name: name.to_owned(),
        secret: secret.as_bytes().to_vec(),
    }
}
