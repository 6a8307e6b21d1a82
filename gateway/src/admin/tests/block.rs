//! Admins that ask for what cannot be, or for the same at once.

use super::*;

const TARGET: &str = "iqn.2024-01.com.example:disks";
const INITIATOR: &str = "iqn.2024-01.com.example:host";
const MIB: u64 = 1 << 20;

/// Refused for what was asked, with a sentence that says why.
fn assert_refused(reply: &(u16, Value), what: &str) {
    let (status, body) = reply;
    assert!((400..500).contains(status), "{what:.40}: {status} {body}");
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.len() >= 10, "{message:?}");
}

/// Any text as one segment of a path.
fn segment(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

fn absurd_names() -> Vec<String> {
    let mut names: Vec<String> = [
        "",
        " ",
        " a",
        "a ",
        "a/b",
        "../../etc/passwd",
        "a@b",
        "a\0b",
        "a\nb",
        "\u{7f}",
        "/",
    ]
    .map(str::to_owned)
    .to_vec();
    names.extend(["x".repeat(97), "x".repeat(10_000), "\u{e9}".repeat(49)]);
    names
}

#[tokio::test]
async fn a_lun_of_an_absurd_name_is_refused() {
    let admin = Admin::start().await;
    for name in absurd_names() {
        for new in [
            json!({"name": name, "size_bytes": MIB}),
            json!({"name": name, "existing": true}),
        ] {
            let reply = admin.ask("POST", "/v1/luns", new).await;
            assert_refused(&reply, &name);
        }
        if name.is_empty() {
            continue;
        }
        let path = format!("/v1/luns/{}", segment(&name));
        for method in ["GET", "DELETE"] {
            let reply = admin.ask(method, &path, Value::Null).await;
            assert_refused(&reply, &name);
        }
        let change = json!({"size_bytes": MIB});
        assert_refused(&admin.ask("PATCH", &path, change).await, &name);
    }
    let (_, left) = admin.ask("GET", "/v1/luns", Value::Null).await;
    assert_eq!(left["luns"], json!([]));
    // What is odd and yet a name works all the way.
    for name in [
        "..",
        "\u{65e5}\u{672c}",
        "a b",
        "%2e%2e",
        "x?y#z",
        &"x".repeat(96),
    ] {
        let new = json!({"name": name, "size_bytes": MIB});
        let made = admin.ask("POST", "/v1/luns", new).await;
        assert_eq!(
            (made.0, &made.1["state"]),
            (201, &json!("served")),
            "{made:?}"
        );
        let path = format!("/v1/luns/{}", segment(name));
        assert_eq!(admin.ask("GET", &path, Value::Null).await.1["name"], name);
        assert_eq!(
            admin.ask("DELETE", &path, Value::Null).await.0,
            204,
            "{name}"
        );
    }
}

#[tokio::test]
async fn absurd_numbers_are_refused() {
    let admin = Admin::start().await;
    for field in [
        json!({}),
        json!({"size_bytes": 0}),
        json!({"size_bytes": 1}),
        json!({"size_bytes": 513}),
        json!({"size_bytes": -1}),
        json!({"size_bytes": u64::MAX}),
        json!({"size_bytes": 1_u64 << 46 | 512}),
        json!({"size_bytes": 1e300}),
        json!({"size_bytes": 1.5}),
        json!({"size_bytes": "1"}),
        json!({"size_bytes": MIB, "existing": true}),
        json!({"size_bytes": MIB, "block_bytes": 0}),
        json!({"size_bytes": MIB, "block_bytes": 520}),
        json!({"size_bytes": MIB, "object_size": 0}),
        json!({"size_bytes": MIB, "object_size": u32::MAX}),
        json!({"size_bytes": MIB, "object_size": 1_u64 << 32}),
        json!({"size_bytes": MIB, "stripe_unit": 0}),
        json!({"size_bytes": MIB, "stripe_unit": u32::MAX}),
        json!({"size_bytes": MIB, "stripe_count": 0}),
        json!({"size_bytes": MIB, "stripe_count": u32::MAX}),
        json!({"size_bytes": MIB, "colour": "red"}),
    ] {
        let what = field.to_string();
        let mut new = field;
        new["name"] = json!("disk");
        assert_refused(&admin.ask("POST", "/v1/luns", new).await, &what);
    }
}

#[tokio::test]
async fn absurd_numbers_of_what_is_there_are_refused() {
    let admin = Admin::start().await;
    let new = json!({"name": "disk", "size_bytes": MIB});
    assert_eq!(admin.ask("POST", "/v1/luns", new).await.0, 201);
    for size_bytes in [
        json!(0),
        json!(-1),
        json!(u64::MAX),
        json!(MIB + 1),
        json!(null),
    ] {
        let what = size_bytes.to_string();
        let change = json!({"size_bytes": size_bytes, "shrink": true});
        assert_refused(&admin.ask("PATCH", "/v1/luns/disk", change).await, &what);
    }
    admin
        .ask("POST", "/v1/targets", json!({"name": TARGET}))
        .await;
    let maps = format!("/v1/targets/{TARGET}/maps");
    for lun in [
        json!(-1),
        json!(0x4000),
        json!(65_536),
        json!(1e9),
        json!("1"),
    ] {
        let what = lun.to_string();
        let map = json!({"name": "disk", "lun": lun});
        assert_refused(&admin.ask("POST", &maps, map).await, &what);
    }
    for lun in [
        "-1",
        "16384",
        "65536",
        "99999999999999999999",
        "x",
        "0x1",
        "1",
    ] {
        let reply = admin
            .ask("DELETE", &format!("{maps}/{lun}"), Value::Null)
            .await;
        assert_refused(&reply, lun);
    }
    for id in ["0", "-1", "65535", "65536", "x"] {
        let reply = admin
            .ask("DELETE", &format!("/v1/sessions/{id}"), Value::Null)
            .await;
        assert_refused(&reply, id);
    }
    for query in [
        "limit=0",
        "limit=-1",
        "limit=99999999999999999999",
        "after=%ff",
    ] {
        let reply = admin
            .ask("GET", &format!("/v1/luns?{query}"), Value::Null)
            .await;
        assert!(reply.0 < 500, "{query}: {reply:?}");
    }
}

#[tokio::test]
async fn absurd_names_of_iscsi_are_refused() {
    let admin = Admin::start().await;
    admin
        .ask("POST", "/v1/targets", json!({"name": TARGET}))
        .await;
    let new = json!({"name": "disk", "size_bytes": MIB});
    admin.ask("POST", "/v1/luns", new).await;
    let mut names = absurd_names();
    names.extend([
        format!("iqn.2024-01.com.example:{}", "x".repeat(200)),
        "iqn.2024-01.com.example:\u{e9}".to_owned(),
        "iqn.2024-01.com.example:a b".to_owned(),
        "iqn.\u{e9}\u{e9}\u{e9}\u{e9}".to_owned(),
        "eui.0200".to_owned(),
        "naa.".to_owned(),
    ]);
    for name in names {
        let new = json!({"name": name});
        assert_refused(&admin.ask("POST", "/v1/targets", new).await, &name);
        let secret = "a-secret-of-host";
        let new = json!({"name": name, "chap_user": "host", "chap_secret": secret});
        assert_refused(&admin.ask("POST", "/v1/initiators", new).await, &name);
        let map = json!({"name": "disk", "initiator": name});
        let maps = format!("/v1/targets/{TARGET}/maps");
        assert_refused(&admin.ask("POST", &maps, map).await, &name);
        let map = json!({"name": name});
        assert_refused(&admin.ask("POST", &maps, map).await, &name);
        if name.is_empty() {
            continue;
        }
        let name = segment(&name);
        for path in [
            format!("/v1/targets/{name}"),
            format!("/v1/targets/{name}/maps/1"),
            format!("/v1/targets/{TARGET}/maps/1?initiator={name}"),
            format!("/v1/initiators/{name}"),
        ] {
            assert_refused(&admin.ask("DELETE", &path, Value::Null).await, &path);
        }
    }
    for (user, secret) in [
        ("", "a-secret-of-host"),
        ("host", ""),
        ("host", "short"),
        ("host", &*"x".repeat(10_000)),
        (&*"x".repeat(10_000), "a-secret-of-host"),
        ("a\0b", "a-secret-of-host"),
    ] {
        let new = json!({"name": INITIATOR, "chap_user": user, "chap_secret": secret});
        assert_refused(&admin.ask("POST", "/v1/initiators", new).await, user);
    }
    let (_, left) = admin.ask("GET", "/v1/initiators", Value::Null).await;
    assert_eq!(left["initiators"], json!([]));
    let (_, left) = admin.ask("GET", "/v1/targets", Value::Null).await;
    assert_eq!(left["targets"][0]["maps"], json!([]));
}

/// Whoever is first has it; whoever is later is told, and what is left is whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_admins_at_once_one_wins_and_the_other_is_told() {
    let admin = Admin::start().await;
    let admin = &admin;
    for round in 0..20 {
        let new = json!({"name": "disk", "size_bytes": MIB});
        let make = || admin.ask("POST", "/v1/luns", new.clone());
        let (a, b, c) = tokio::join!(make(), make(), make());
        let mut statuses = [a.0, b.0, c.0];
        statuses.sort_unstable();
        assert_eq!(
            statuses,
            [201, 409, 409],
            "round {round}: {a:?} {b:?} {c:?}"
        );
        let (_, shown) = admin.ask("GET", "/v1/luns/disk", Value::Null).await;
        assert_eq!(
            (&shown["state"], shown["image"].is_object()),
            (&json!("served"), true)
        );

        let delete = || admin.ask("DELETE", "/v1/luns/disk", Value::Null);
        for (status, body) in <[_; 2]>::from(tokio::join!(delete(), delete())) {
            assert!(
                matches!(status, 204 | 404),
                "round {round}: {status} {body}"
            );
        }
        let (_, left) = admin.ask("GET", "/v1/luns", Value::Null).await;
        assert_eq!(left["luns"], json!([]), "round {round}");
    }
}

/// One of the two may win, or both lose; what was refused has changed nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_mapped_while_it_is_deleted_is_there_or_gone() {
    let admin = Admin::start().await;
    let admin = &admin;
    let target = json!({"name": TARGET});
    assert_eq!(admin.ask("POST", "/v1/targets", target).await.0, 201);
    for round in 0..20 {
        let new = json!({"name": "disk", "size_bytes": MIB});
        let (status, body) = admin.ask("POST", "/v1/luns", new).await;
        assert_eq!(status, 201, "round {round}: {body}");
        let path = format!("/v1/targets/{TARGET}/maps");
        let (deleted, mapped) = tokio::join!(
            admin.ask("DELETE", "/v1/luns/disk", Value::Null),
            admin.ask("POST", &path, json!({"name": "disk"})),
        );
        let (status, shown) = admin.ask("GET", "/v1/luns/disk", Value::Null).await;
        if deleted.0 == 204 {
            assert_eq!(
                (status, mapped.0),
                (404, 404),
                "round {round}: {deleted:?} {mapped:?}"
            );
            continue;
        }
        assert_eq!(
            shown["state"], "served",
            "round {round}: {deleted:?} {mapped:?}"
        );
        if mapped.0 < 300 {
            let lun = &shown["maps"][0]["lun"];
            let path = format!("{path}/{lun}");
            assert_eq!(admin.ask("DELETE", &path, Value::Null).await.0, 204);
        }
        assert_eq!(
            admin.ask("DELETE", "/v1/luns/disk", Value::Null).await.0,
            204
        );
    }
}
