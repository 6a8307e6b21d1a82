use bytes::Bytes;

use super::*;

fn sys(uid: u32, gid: u32, gids: &[u32]) -> Credential {
    Credential::Sys(AuthSys {
        stamp: 0,
        machine_name: Bytes::new(),
        uid,
        gid,
        gids: gids.to_vec(),
    })
}

fn rule(squash: Squash) -> Rule {
    Rule {
        client: Client::Any,
        is_read_only: false,
        squash,
        anonymous: Anonymous { uid: 98, gid: 99 },
        needs_reserved_port: true,
    }
}

#[test]
fn callers_become_what_the_rule_says() {
    let root = sys(0, 0, &[0, 5]);
    let user = sys(10, 0, &[7]);
    for (squash, credential, uid, gid, groups) in [
        (Squash::None, &root, 0, 0, vec![0, 5]),
        (Squash::None, &user, 10, 0, vec![7]),
        (Squash::Root, &root, 98, 99, vec![99, 5]),
        (Squash::Root, &user, 10, 99, vec![7]),
        (Squash::All, &root, 98, 99, vec![]),
        (Squash::All, &user, 98, 99, vec![]),
        (Squash::None, &Credential::None, 98, 99, vec![]),
    ] {
        let identity = rule(squash).identify(credential);
        let expected = Identity { uid, gid, groups };
        assert_eq!(identity, expected, "{squash:?} {credential:?}");
    }
}

#[test]
fn rules_fit_hosts_networks_and_names() {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let name = Client::Name("vm1".to_owned(), vec![ip("10.0.0.7"), ip("fe80::7")]);
    for (client, fits, does_not) in [
        (Client::Host(ip("10.0.0.1")), "::ffff:10.0.0.1", "10.0.0.2"),
        (Client::Network(ip("10.0.0.0"), 8), "10.255.0.1", "11.0.0.1"),
        (
            Client::Network(ip("10.0.0.128"), 25),
            "10.0.0.255",
            "10.0.0.127",
        ),
        (Client::Network(ip("10.0.0.1"), 32), "10.0.0.1", "10.0.0.0"),
        (Client::Network(ip("0.0.0.0"), 0), "200.1.2.3", "fe80::1"),
        (
            Client::Network(ip("fe80::"), 64),
            "fe80::9",
            "fe80:0:0:1::9",
        ),
        (name, "fe80::7", "10.0.0.8"),
    ] {
        assert!(client.fits(ip(fits)), "{client:?} {fits}");
        assert!(!client.fits(ip(does_not)), "{client:?} {does_not}");
    }
    assert!(Client::Any.fits(ip("1.2.3.4")));
}

#[test]
fn reserved_ports_are_those_below_1024() {
    let from = |port| SocketAddr::from(([10, 0, 0, 1], port));
    let reserved = rule(Squash::Root);
    assert!(reserved.takes_port_of(from(1_023)));
    assert!(!reserved.takes_port_of(from(1_024)));
    let any = Rule {
        needs_reserved_port: false,
        ..reserved
    };
    assert!(any.takes_port_of(from(1_024)));
}
