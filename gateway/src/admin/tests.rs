mod block;

use super::*;

use axum::body::Body;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use portico_backend::bucket::{BucketOptions, Buckets};
use portico_backend::budget::Budget;
use portico_backend::catalog::{Catalog, Keyring};
use portico_backend::clock::{Clock, FixedClock};
use portico_backend::gate::{GateControl, gate};
use portico_backend::memory::{MemoryCluster, MemoryOptions};
use portico_backend::tenure::{Lasts, TenureControl, tenures};
use portico_backend::volumes::Volumes;
use portico_iscsi::serve::{Service as IscsiService, ServiceParts};
use portico_iscsi::target::Targets;
use serde_json::{Value, json};

use crate::block::Parts;
use crate::health::Phase;

/// One node's admin API over a store of its own.
struct Admin {
    router: Router,
    volumes: Volumes,
    /// Keeps the gate open.
    _control: GateControl,
    tenure: TenureControl,
}

impl Admin {
    async fn start() -> Self {
        let cluster = MemoryCluster::new(MemoryOptions::default());
        let store = cluster.session("test");
        let pools = Pools::default();
        let clock: Arc<dyn Clock> = Arc::new(FixedClock::new(1_000));
        let keyring = Arc::new(Keyring::generate("k1").unwrap());
        let (meta, data) = (pools.meta.clone(), pools.data.clone());
        let options = BucketOptions::default();
        let volumes = Volumes {
            catalog: Catalog::open(store.clone(), meta.clone(), clock.clone(), keyring)
                .await
                .unwrap(),
            buckets: Buckets::open(store.clone(), meta, data, clock, options)
                .await
                .unwrap(),
        };
        volumes.catalog.node_register("local", None).await.unwrap();
        let (control, gate) = gate(true);
        let (tenure, tenures) = tenures();
        tenure.begin(Tenure::new(volumes.clone(), store, Lasts::forever()));
        let health = Health::new(gate, tenures.clone());
        health.enter(Phase::Serving);
        let block = block(cluster, tenures.clone());
        block.begin(vec!["127.0.0.1:3260".parse().unwrap()]).await;
        let context = Context {
            block,
            space: None,
            cluster: None,
            tenures,
            node: Arc::from("local"),
            pools,
            health,
            region: Arc::from("eu-west-1"),
        };
        Self {
            router: router(context),
            volumes,
            _control: control,
            tenure,
        }
    }

    async fn ask(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        send(self.router.clone(), method, path, body, "").await
    }
}

fn block(cluster: MemoryCluster, tenures: Tenures) -> Block {
    let (control, gate) = gate(false);
    let iscsi = ServiceParts {
        targets: Targets::default(),
        stats: Arc::default(),
        window_budget: Budget::new(1 << 20),
        budget: Budget::new(1 << 20),
        gate,
    };
    let parts = Parts {
        engine: Engine::Memory(cluster),
        pools: Pools::default(),
        tenures,
        node: Arc::from("local"),
        iscsi: Arc::new(IscsiService::new(iscsi)),
    };
    Block::new(parts, control)
}

async fn send(router: Router, method: &str, path: &str, body: String, token: &str) -> (u16, Value) {
    let mut request = http::Request::builder().method(method).uri(path);
    if !token.is_empty() {
        request = request.header(header::AUTHORIZATION, token);
    }
    let request = request.body(Body::from(body)).unwrap();
    let reply = TowerToHyperService::new(router)
        .call(request)
        .await
        .unwrap();
    let status = reply.status().as_u16();
    let body = axum::body::to_bytes(reply.into_body(), 1 << 20)
        .await
        .unwrap();
    let body = if body.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(&body).unwrap()
    };
    (status, body)
}

fn code(reply: &(u16, Value)) -> (u16, &str) {
    let error = &reply.1["error"];
    assert!(!error["message"].as_str().unwrap().is_empty());
    (reply.0, error["code"].as_str().unwrap())
}

#[tokio::test]
async fn a_user_is_made_changed_and_deleted() {
    let admin = Admin::start().await;
    let (status, made) = admin
        .ask("POST", "/v1/users", json!({"name": "alice"}))
        .await;
    assert_eq!(status, 201);
    assert_eq!(made["display_name"], "alice");
    assert_eq!(made["created_ms"], 1_000);
    let id = made["id"].as_str().unwrap();
    for user in ["alice", id] {
        let (status, read) = admin
            .ask("GET", &format!("/v1/users/{user}"), Value::Null)
            .await;
        assert_eq!((status, &read), (200, &made));
    }
    let taken = admin
        .ask("POST", "/v1/users", json!({"name": "alice"}))
        .await;
    assert_eq!(code(&taken), (409, "UserExists"));

    let change = json!({"disabled": true, "display_name": "Alice"});
    let (status, changed) = admin.ask("PATCH", "/v1/users/alice", change).await;
    assert_eq!((status, &changed["disabled"]), (200, &json!(true)));
    assert_eq!(changed["display_name"], "Alice");
    assert!(admin.volumes.catalog.user(id).unwrap().disabled);

    assert_eq!(
        admin.ask("DELETE", "/v1/users/alice", Value::Null).await.0,
        204
    );
    let gone = admin.ask("DELETE", "/v1/users/alice", Value::Null).await;
    assert_eq!(code(&gone), (404, "NoSuchUser"));
}

#[tokio::test]
async fn keys_are_drawn_or_chosen_and_told_once() {
    let admin = Admin::start().await;
    admin
        .ask("POST", "/v1/users", json!({"name": "alice"}))
        .await;
    admin.ask("POST", "/v1/users", json!({"name": "bob"})).await;
    let keys = "/v1/users/alice/keys";
    let (status, drawn) = admin.ask("POST", keys, Value::Null).await;
    assert_eq!(status, 201);
    let id = drawn["access_key"].as_str().unwrap();
    let secret = drawn["secret_key"].as_str().unwrap();
    let credential = admin.volumes.catalog.access_key(id).unwrap();
    assert!(credential.secret.matches(secret));

    let chosen = json!({"access_key": "CHOSEN", "secret_key": "a-chosen-secret"});
    assert_eq!(admin.ask("POST", keys, chosen.clone()).await.0, 201);
    let taken = admin.ask("POST", "/v1/users/bob/keys", chosen).await;
    assert_eq!(code(&taken), (409, "AccessKeyExists"));
    for bad in [
        json!({"access_key": "CHOSEN"}),
        json!({"access_key": "a/b", "secret_key": "a-chosen-secret"}),
        json!({"access_key": "OTHER", "secret_key": "short"}),
    ] {
        let refused = admin.ask("POST", keys, bad).await;
        assert_eq!(code(&refused), (400, "InvalidRequest"));
        assert!(!refused.1.to_string().contains("short"), "{refused:?}");
    }

    let (_, listed) = admin.ask("GET", keys, Value::Null).await;
    assert_eq!(listed["access_keys"].as_array().unwrap().len(), 2);
    assert!(!listed.to_string().contains(secret));
    assert_eq!(listed["access_keys"][0]["usable"], true);

    // Of another user.
    let refused = admin
        .ask("DELETE", &format!("/v1/users/bob/keys/{id}"), Value::Null)
        .await;
    assert_eq!(code(&refused), (404, "NoSuchAccessKey"));
    assert_eq!(
        admin
            .ask("DELETE", &format!("{keys}/{id}"), Value::Null)
            .await
            .0,
        204
    );
    assert!(admin.volumes.catalog.access_key(id).is_none());
}

#[tokio::test]
async fn a_bucket_is_made_shown_and_deleted_when_empty() {
    let admin = Admin::start().await;
    admin
        .ask("POST", "/v1/users", json!({"name": "alice"}))
        .await;
    let new = json!({"name": "photos", "owner": "alice"});
    let (status, made) = admin.ask("POST", "/v1/buckets", new.clone()).await;
    assert_eq!((status, &made["state"]), (201, &json!("live")));
    assert_eq!(
        (&made["owner"], &made["region"]),
        (&json!("alice"), &json!("eu-west-1"))
    );
    let taken = admin.ask("POST", "/v1/buckets", new).await;
    assert_eq!(code(&taken), (409, "BucketExists"));
    let bad = admin
        .ask(
            "POST",
            "/v1/buckets",
            json!({"name": "A", "owner": "alice"}),
        )
        .await;
    assert_eq!(code(&bad), (400, "InvalidRequest"));
    let nobodys = json!({"name": "other", "owner": "nobody"});
    let nobodys = admin.ask("POST", "/v1/buckets", nobodys).await;
    assert_eq!(code(&nobodys), (404, "NoSuchUser"));

    let (_, shown) = admin.ask("GET", "/v1/buckets/photos", Value::Null).await;
    assert_eq!(
        (&shown["object_count"], &shown["name"]),
        (&json!(0), &json!("photos"))
    );
    let owns = admin.ask("DELETE", "/v1/users/alice", Value::Null).await;
    assert_eq!(code(&owns), (409, "UserOwnsBuckets"));

    let name = portico_backend::catalog::BucketName::new("photos").unwrap();
    let record = admin.volumes.catalog.bucket(&name).await.unwrap().unwrap();
    let bucket = admin.volumes.buckets.bucket(record.id).await.unwrap();
    let key = portico_backend::bucket::Key::new("key").unwrap();
    let writer = bucket.put(key.clone());
    writer
        .finish(Default::default(), &Default::default())
        .await
        .unwrap();
    let full = admin.ask("DELETE", "/v1/buckets/photos", Value::Null).await;
    assert_eq!(code(&full), (409, "BucketNotEmpty"));
    bucket
        .delete(&key, None, &Default::default())
        .await
        .unwrap();
    assert_eq!(
        admin
            .ask("DELETE", "/v1/buckets/photos", Value::Null)
            .await
            .0,
        204
    );
    for method in ["GET", "DELETE"] {
        let gone = admin.ask(method, "/v1/buckets/photos", Value::Null).await;
        assert_eq!(code(&gone), (404, "NoSuchBucket"));
    }
}

#[tokio::test]
async fn lists_come_in_pages() {
    let admin = Admin::start().await;
    for name in ["a", "b", "c"] {
        admin.ask("POST", "/v1/users", json!({"name": name})).await;
        let new = json!({"name": format!("{name}-bucket"), "owner": name});
        admin.ask("POST", "/v1/buckets", new).await;
    }
    let (_, first) = admin.ask("GET", "/v1/users?limit=2", Value::Null).await;
    assert_eq!(first["users"][1]["name"], "b");
    assert_eq!(first["next"], "b");
    let (_, second) = admin
        .ask("GET", "/v1/users?limit=2&after=b", Value::Null)
        .await;
    assert_eq!(second["users"].as_array().unwrap().len(), 1);
    assert_eq!(second["next"], Value::Null);
    let (_, owned) = admin.ask("GET", "/v1/buckets?owner=b", Value::Null).await;
    assert_eq!(owned["buckets"].as_array().unwrap().len(), 1);
    assert_eq!(owned["buckets"][0]["name"], "b-bucket");
    for bad in ["limit=0", "limit=x", "colour=red"] {
        let refused = admin
            .ask("GET", &format!("/v1/users?{bad}"), Value::Null)
            .await;
        assert_eq!(code(&refused), (400, "InvalidRequest"), "{bad}");
    }
}

#[tokio::test]
async fn every_reply_is_json_also_to_nonsense() {
    let admin = Admin::start().await;
    let missing = admin.ask("GET", "/v2/users", Value::Null).await;
    assert_eq!(code(&missing), (404, "NoSuchRoute"));
    for path in ["/v1/users/%ff", "/v1/buckets/%ff", "/v1/users/a/keys/%ff"] {
        let method = if path.contains("keys") {
            "DELETE"
        } else {
            "GET"
        };
        let no_text = admin.ask(method, path, Value::Null).await;
        assert_eq!(code(&no_text), (400, "InvalidRequest"), "{path}");
    }
    let wrong = admin.ask("PUT", "/v1/users", Value::Null).await;
    assert_eq!(code(&wrong), (405, "MethodNotAllowed"));
    for body in ["{", "[]", "{\"name\": \"a\", \"colour\": 1}", "{}", "\u{0}"] {
        let reply = send(
            admin.router.clone(),
            "POST",
            "/v1/users",
            body.to_owned(),
            "",
        )
        .await;
        assert_eq!(code(&reply), (400, "InvalidRequest"), "{body}");
    }
    let large = "x".repeat(BODY_BYTES_MAX + 1);
    let reply = send(admin.router.clone(), "POST", "/v1/users", large, "").await;
    assert_eq!(code(&reply), (400, "InvalidRequest"));
}

#[tokio::test]
async fn status_tells_what_there_is() {
    let admin = Admin::start().await;
    admin
        .ask("POST", "/v1/users", json!({"name": "alice"}))
        .await;
    let (status, body) = admin.ask("GET", "/v1/status", Value::Null).await;
    assert_eq!((status, &body["ready"]), (200, &json!(true)), "{body}");
    assert_eq!(
        (&body["user_count"], &body["node"]),
        (&json!(1), &json!("local"))
    );
    assert_eq!(body["warnings"], json!([]));
    admin.ask("POST", "/v1/users/alice/keys", Value::Null).await;
    let (_, keyring) = admin.ask("GET", "/v1/keyring", Value::Null).await;
    assert_eq!(keyring, json!({"keys": [{"id": "k1", "secret_count": 1}]}));
    let other = Arc::new(Keyring::generate("k2").unwrap());
    admin.volumes.catalog.keyring_replace(other).await.unwrap();
    let (_, body) = admin.ask("GET", "/v1/status", Value::Null).await;
    assert!(
        body["warnings"][0].as_str().unwrap().contains("\"k1\""),
        "{body}"
    );
    let (_, nodes) = admin.ask("GET", "/v1/nodes", Value::Null).await;
    assert_eq!(nodes["nodes"][0]["name"], "local");

    admin.tenure.end("the session was fenced");
    let (status, body) = admin.ask("GET", "/v1/status", Value::Null).await;
    assert_eq!((status, &body["ready"]), (200, &json!(false)), "{body}");
    assert_eq!(body["reason"], "the session was fenced");
    assert_eq!(body["session"]["open"], json!(false));
    let refused = admin.ask("GET", "/v1/users", Value::Null).await;
    assert_eq!(code(&refused), (503, "StoreUnavailable"));
}

#[tokio::test]
async fn without_the_token_nothing_is_told() {
    let admin = Admin::start().await;
    let token = Secret::new("the-admin-token").unwrap();
    let router = with_token(admin.router.clone(), token);
    for (token, status) in [
        ("", 401),
        ("Bearer ", 401),
        ("Bearer the-admin-toke", 401),
        ("Bearer the-admin-token ", 401),
        ("Basic the-admin-token", 401),
        ("Bearer the-admin-token", 200),
        ("bearer the-admin-token", 200),
        ("BEARER  the-admin-token", 200),
        ("Basic the-admin-token", 401),
        ("Bearerthe-admin-token", 401),
    ] {
        let path = "/v1/status";
        let reply = send(router.clone(), "GET", path, String::new(), token).await;
        assert_eq!(reply.0, status, "{token}");
        if status == 401 {
            assert_eq!(code(&reply), (401, "Unauthorized"));
        }
    }
    // Not even which routes there are.
    let reply = send(router, "GET", "/v1/nothing", String::new(), "").await;
    assert_eq!(code(&reply), (401, "Unauthorized"));
}

#[tokio::test]
async fn a_lun_is_made_mapped_resized_and_deleted() {
    const TARGET: &str = "iqn.2024-01.com.example:disks";
    const MIB: u64 = 1 << 20;
    let admin = Admin::start().await;
    let new = json!({"name": "disk", "size_bytes": 8 * MIB});
    let (status, made) = admin.ask("POST", "/v1/luns", new.clone()).await;
    assert_eq!((status, &made["state"]), (201, &json!("served")), "{made}");
    assert_eq!(made["image"]["block_bytes"], 512);
    let again = admin.ask("POST", "/v1/luns", new).await;
    assert_eq!(code(&again), (409, "Refused"));

    let target = json!({"name": TARGET});
    assert_eq!(admin.ask("POST", "/v1/targets", target).await.0, 201);
    let maps = format!("/v1/targets/{TARGET}/maps");
    let nothing = admin.ask("POST", &maps, json!({"name": "disc"})).await;
    assert_eq!(code(&nothing), (404, "NoSuch"));
    let (status, map) = admin.ask("POST", &maps, json!({"name": "disk"})).await;
    assert_eq!((status, &map["lun"]), (201, &json!(1)));
    let (_, shown) = admin.ask("GET", "/v1/luns/disk", Value::Null).await;
    assert_eq!(shown["maps"][0]["target"], TARGET);

    let mapped = admin.ask("DELETE", "/v1/luns/disk", Value::Null).await;
    assert_eq!(code(&mapped), (409, "Refused"));
    let smaller = json!({"size_bytes": MIB});
    let refused = admin.ask("PATCH", "/v1/luns/disk", smaller).await;
    assert_eq!(code(&refused), (409, "Refused"));
    let smaller = json!({"size_bytes": MIB, "shrink": true});
    let (status, changed) = admin.ask("PATCH", "/v1/luns/disk", smaller).await;
    assert_eq!(
        (status, &changed["image"]["size_bytes"]),
        (200, &json!(MIB))
    );

    let options = json!({"write_cache": true});
    let (status, changed) = admin.ask("PATCH", "/v1/luns/disk", options).await;
    assert_eq!((status, &changed["write_cache"]), (200, &json!(true)));
    assert_eq!(changed["read_only"], false);
    for unclear in [json!({}), json!({"size_bytes": MIB, "read_only": true})] {
        let refused = admin.ask("PATCH", "/v1/luns/disk", unclear).await;
        assert_eq!(refused.0, 400, "{refused:?}");
    }

    let map = format!("{maps}/1");
    assert_eq!(admin.ask("DELETE", &map, Value::Null).await.0, 204);
    assert_eq!(
        admin.ask("DELETE", "/v1/luns/disk", Value::Null).await.0,
        204
    );
    let gone = admin.ask("GET", "/v1/luns/disk", Value::Null).await;
    assert_eq!(code(&gone), (404, "NoSuch"));
    let (_, left) = admin.ask("GET", "/v1/luns", Value::Null).await;
    assert_eq!(left["luns"], json!([]));
}

#[tokio::test]
async fn an_initiator_has_secrets_that_are_never_told() {
    const INITIATOR: &str = "iqn.2024-01.com.example:host";
    let admin = Admin::start().await;
    let new = json!({"name": INITIATOR, "chap_user": "host", "chap_secret": "short"});
    assert_eq!(code(&admin.ask("POST", "/v1/initiators", new).await).0, 400);
    let new = json!({"name": INITIATOR, "chap_user": "host", "chap_secret": "a-secret-of-host"});
    let (status, made) = admin.ask("POST", "/v1/initiators", new).await;
    assert_eq!((status, &made["chap_user"]), (201, &json!("host")));
    let (_, listed) = admin.ask("GET", "/v1/initiators", Value::Null).await;
    assert_eq!(listed["initiators"][0]["name"], INITIATOR);
    assert!(!listed.to_string().contains("a-secret-of-host"));
    let path = format!("/v1/initiators/{INITIATOR}");
    assert_eq!(admin.ask("DELETE", &path, Value::Null).await.0, 204);
    assert_eq!(
        code(&admin.ask("DELETE", &path, Value::Null).await),
        (404, "NoSuch")
    );
    let none = admin.ask("DELETE", "/v1/sessions/7", Value::Null).await;
    assert_eq!(code(&none), (404, "NoSuchSession"));
}
