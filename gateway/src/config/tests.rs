use super::*;

fn mistake(text: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("portico.toml");
    std::fs::write(&path, text).unwrap();
    let failure = Config::load(Some(&path)).unwrap_err();
    failure.to_string().replace(path.to_str().unwrap(), "FILE")
}

#[test]
fn no_file_means_loopback_and_a_local_store() {
    let config = Config::load(None).unwrap();
    assert_eq!(config.data_dir, Path::new("./portico-data"));
    assert_eq!(config.keyring_file, Path::new("./portico-data/keyring"));
    assert!(matches!(
        config.backend,
        Backend::Local {
            capacity_bytes: None,
            ..
        }
    ));
    let addresses: Vec<_> = config.s3.listen.iter().map(Listen::to_string).collect();
    assert_eq!(addresses, ["http://127.0.0.1:9000"]);
    assert!(config.metrics.unwrap().ip().is_loopback());
    assert_eq!(config.admin.tcp, None);
}

#[test]
fn an_empty_file_is_the_default_but_for_nothing() {
    assert_eq!(
        Config::parse("", Path::new("/etc/portico")).unwrap(),
        Config::default()
    );
}

#[test]
fn an_unknown_key_is_refused_with_its_line() {
    let text = mistake("data_dir = \"x\"\n\n[s3]\nregoin = \"eu\"\n");
    assert!(
        text.starts_with("FILE, line 4, key s3.regoin: unknown field `regoin`"),
        "{text}"
    );
    assert!(text.contains("`region`"), "{text}");
    let text = mistake("[[s3.listen]]\naddress = \"[::]:1\"\nport = 3\n");
    assert!(
        text.starts_with("FILE, line 3, key s3.listen.port: unknown field"),
        "{text}"
    );
    let text = mistake("colour = 1");
    assert!(
        text.starts_with("FILE, line 1, key colour: unknown field"),
        "{text}"
    );
}

#[test]
fn a_wrong_value_is_refused_with_line_key_and_remedy() {
    for (text, place, remedy) in [
        (
            "[[s3.listen]]\naddress = \"localhost\"",
            "line 2, key s3.listen.address",
            "127.0.0.1:9000",
        ),
        (
            "[s3]\nregion = \"EU West\"",
            "line 2, key s3.region",
            "lower-case",
        ),
        ("[s3]\nsigv2 = 1", "line 2, key s3.sigv2", "configure.md"),
        (
            "[s3]\nvirtual_host_domains = [\"*.x\"]",
            "line 2, key s3.virtual_host_domains",
            "wildcard",
        ),
        (
            "\n[log]\nlevel = \"loud\"",
            "line 3, key log.level",
            "\"info\"",
        ),
        (
            "[log]\nformat = \"xml\"",
            "line 2, key log.format",
            "configure.md",
        ),
        (
            "[limits]\nconnections = 0",
            "line 2, key limits.connections",
            "from 1 to",
        ),
        (
            "[limits]\nmemory_bytes = -1",
            "line 2, key limits.memory_bytes",
            "configure.md",
        ),
        (
            "[backend]\nkind = \"tape\"",
            "line 2, key backend.kind",
            "configure.md",
        ),
        (
            "[backend]\nkind = \"memory\"\ncache_bytes = 1",
            "line 3, key backend.cache_bytes",
            "local",
        ),
        (
            "[admin.tcp]\naddress = \"0.0.0.0:1\"\ntoken_file = \"t\"",
            "line 2, key admin.tcp.address",
            "tls =",
        ),
        (
            "[[s3.listen]]\ntls = { key = \"k\" }",
            "line 2, key s3.listen.tls",
            "configure.md",
        ),
        ("[s3\n", "line 1", "configure.md"),
        (
            "[s3]\nregion = \"eu\"\nlisten = []",
            "line 3, key s3.listen: nothing would be served",
            "127.0.0.1:9000",
        ),
    ] {
        let told = mistake(text);
        assert!(
            told.contains(place) && told.contains(remedy),
            "{text}: {told}"
        );
    }
}

#[test]
fn paths_are_relative_to_the_file_and_the_options_override_it() {
    let text = "data_dir = \"data\"\n[keyring]\nfile = \"/secret/keyring\"\n\
        [[s3.listen]]\naddress = \"[::1]:9443\"\ntls = { certificate = \"c.pem\", key = \"k.pem\" }";
    let config = Config::parse(text, Path::new("/etc/portico")).unwrap();
    assert_eq!(config.data_dir, Path::new("/etc/portico/data"));
    assert_eq!(
        config.admin.socket,
        Path::new("/etc/portico/data/admin.sock")
    );
    let tls = config.s3.listen[0].tls.clone().unwrap();
    assert_eq!(tls.certificate, Path::new("/etc/portico/c.pem"));

    let config = config.with_data_dir(Path::new("/srv"));
    assert_eq!(config.admin.socket, Path::new("/srv/admin.sock"));
    assert_eq!(config.keyring_file, Path::new("/secret/keyring"));

    let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let config = config.with_listen(address).unwrap();
    assert_eq!(config.s3.listen[0].to_string(), "https://127.0.0.1:1");
}

#[test]
fn the_listen_option_needs_one_listener() {
    let text = "[[s3.listen]]\naddress = \"[::1]:1\"\n[[s3.listen]]\naddress = \"[::1]:2\"";
    let config = Config::parse(text, Path::new("")).unwrap();
    assert!(config.with_listen("127.0.0.1:1".parse().unwrap()).is_err());
}

/// Every key of the manual exists, and its example is a valid configuration.
#[test]
fn the_example_of_the_manual_is_valid() {
    let manual = include_str!("../../../docs/operations/configure.md");
    let example = manual
        .split("```toml\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .expect("the manual has an example");
    let config = Config::parse(example, Path::new("/etc/portico")).unwrap();
    assert_eq!(config.s3.listen.len(), 2);
}

#[test]
fn a_cluster_has_a_default_for_every_key_and_each_may_be_set() {
    let parse = |text: &str| {
        let config = Config::parse(text, Path::new("/etc/portico"));
        let Backend::Rados(rados) = config.unwrap().backend else {
            panic!("kind = \"rados\" is a cluster");
        };
        *rados
    };
    let rados = parse("[backend]\nkind = \"rados\"\n");
    assert_eq!(rados.conf, Path::new("/etc/ceph/ceph.conf"));
    assert_eq!(rados.client, "client.portico");
    assert_eq!((rados.keyring, rados.node), (None, None));
    assert_eq!(rados.meta.pool, "portico-meta");
    assert_eq!(rados.data.pool, "portico-data");
    let rados = parse(
        "[backend]\nkind = \"rados\"\nconf = \"ceph.conf\"\nclient = \"client.a\"\n\
         keyring = \"/k\"\nnode = \"one\"\nmeta = { pool = \"p\", namespace = \"m\" }\n\
         data = { pool = \"p\" }\nop_timeout_seconds = 7\nslow_op_milliseconds = 9\n\
         in_flight_bytes = 33554432\nin_flight_ops = 64\n",
    );
    assert_eq!(rados.conf, Path::new("/etc/portico/ceph.conf"));
    assert_eq!(rados.keyring.as_deref(), Some(Path::new("/k")));
    assert_eq!(rados.node.as_deref(), Some("one"));
    assert_eq!(
        (rados.meta.namespace.as_str(), rados.data.namespace.as_str()),
        ("m", "")
    );
    assert_eq!(rados.op_timeout, Duration::from_secs(7));
    assert_eq!(rados.slow_op, Duration::from_millis(9));
    assert_eq!((rados.in_flight_bytes, rados.in_flight_ops), (32 << 20, 64));
}

#[test]
fn keys_of_a_cluster_are_refused_with_their_line() {
    for (text, expected) in [
        (
            "kind = \"rados\"\npool = \"x\"",
            "line 3, key backend.pool: unknown field",
        ),
        (
            "kind = \"rados\"\nmeta = { pool = \"x\", name = \"y\" }",
            "line 3, key backend.name: unknown field",
        ),
        (
            "kind = \"rados\"\ncache_bytes = 1048576",
            "line 3, key backend.cache_bytes",
        ),
        (
            "kind = \"rados\"\nclient = \"portico\"",
            "line 3, key backend.client",
        ),
        (
            "kind = \"rados\"\nnode = \"a b\"",
            "line 3, key backend.node",
        ),
        (
            "conf = \"x\"",
            "line 2, key backend.conf: this key has no meaning",
        ),
        (
            "kind = \"rados\"\nmeta = { pool = \"p\" }\ndata = { pool = \"p\" }",
            "line 4, key backend.data: data and metadata",
        ),
    ] {
        let text = mistake(&format!("[backend]\n{text}\n"));
        assert!(text.contains(expected), "{text}");
    }
}
