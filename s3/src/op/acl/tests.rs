use http::HeaderValue;

use super::*;

const KINDS: [Right; 4] = [Right::Read, Right::ReadAcp, Right::Write, Right::WriteAcp];

fn headers(pairs: &[(&'static str, &'static str)]) -> Result<Option<Acl>, S3Error> {
    let headers = pairs
        .iter()
        .map(|(name, value)| {
            let name = http::HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        })
        .collect();
    Acl::from_headers(&headers)
}

fn user(id: &str) -> Grantee {
    Grantee::User(id.to_owned())
}

#[test]
fn lists_read_back_from_what_is_stored() {
    let canned = CANNED.iter().map(|(canned, _)| Acl::Canned(*canned));
    let grants = [
        Acl::Grants(Vec::new()),
        Acl::Grants(vec![
            Grant::new(user("a b"), Right::WriteAcp),
            Grant::new(Grantee::Everybody, Right::Read),
            Grant::new(Grantee::SignedIn, Right::FullControl),
        ]),
    ];
    for acl in canned.chain(grants) {
        assert_eq!(Acl::from_stored(&acl.stored()), acl);
    }
    assert_eq!(Acl::default().stored(), "");
}

#[test]
fn documents_read_back() {
    for (canned, _) in CANNED {
        let grants = Acl::Canned(canned).grants("own<er", "bucket owner");
        let document = to_document("own<er", &grants, str::to_uppercase);
        assert!(document.contains("<DisplayName>OWN&lt;ER</DisplayName>"));
        assert_eq!(
            from_document(document.as_bytes()).unwrap(),
            Acl::Grants(grants)
        );
    }
}

#[test]
fn documents_that_say_something_else_are_refused() {
    let grants = Acl::default().grants("o", "o");
    let document = to_document("o", &grants, str::to_owned);
    let code = |from: &str, to: &str| {
        let changed = document.replace(from, to);
        assert_ne!(changed, document);
        from_document(changed.as_bytes()).unwrap_err().code()
    };
    assert_eq!(code("FULL_CONTROL", "ALL"), Code::MalformedAcl);
    assert_eq!(code("AccessControlList>", "List>"), Code::MalformedAcl);
    assert_eq!(
        code("<ID>o</ID>", "<EmailAddress>o</EmailAddress>"),
        Code::NotImplemented
    );
    assert_eq!(code("<ID>o</ID>", "<URI>o</URI>"), Code::InvalidArgument);
    assert_eq!(code("<ID>o</ID>", "<ID>a\nb</ID>"), Code::InvalidArgument);
}

#[test]
fn headers_name_canned_lists_or_grants() {
    assert_eq!(headers(&[("host", "x")]).unwrap(), None);
    assert_eq!(
        headers(&[("x-amz-acl", "public-read")]).unwrap(),
        Some(Acl::Canned(Canned::PublicRead))
    );
    let uri = "uri=http://acs.amazonaws.com/groups/global/AllUsers, id=\"a\"";
    assert_eq!(
        headers(&[("x-amz-grant-write-acp", uri)]).unwrap(),
        Some(Acl::Grants(vec![
            Grant::new(Grantee::Everybody, Right::WriteAcp),
            Grant::new(user("a"), Right::WriteAcp),
        ]))
    );
    let code = |pairs| headers(pairs).unwrap_err().code();
    assert_eq!(
        code(&[("x-amz-acl", "log-delivery-write")]),
        Code::NotImplemented
    );
    assert_eq!(code(&[("x-amz-acl", "public")]), Code::InvalidArgument);
    assert_eq!(code(&[("x-amz-grant-read", "a")]), Code::InvalidArgument);
    assert_eq!(
        code(&[("x-amz-grant-read", "emailAddress=a@b")]),
        Code::NotImplemented
    );
    let both = [("x-amz-acl", "private"), ("x-amz-grant-read", "id=a")];
    assert_eq!(code(&both), Code::InvalidRequest);
}

#[test]
fn canned_lists_allow_others_what_they_say() {
    let allowed = |canned: Canned, asker: Option<&str>| -> Vec<Right> {
        let acl = Acl::Canned(canned);
        KINDS
            .into_iter()
            .filter(|right| acl.allows(asker, *right))
            .collect()
    };
    let (read, both) = (vec![Right::Read], vec![Right::Read, Right::Write]);
    for (canned, nobody, somebody) in [
        (Canned::AuthenticatedRead, vec![], read.clone()),
        (Canned::BucketOwnerFullControl, vec![], vec![]),
        (Canned::BucketOwnerRead, vec![], vec![]),
        (Canned::Private, vec![], vec![]),
        (Canned::PublicRead, read.clone(), read),
        (Canned::PublicReadWrite, both.clone(), both),
    ] {
        assert_eq!(allowed(canned, None), nobody, "{canned:?}");
        assert_eq!(allowed(canned, Some("u")), somebody, "{canned:?}");
    }
}

#[test]
fn a_grant_is_for_its_grantee_and_full_control_is_all() {
    let acl = Acl::Grants(vec![
        Grant::new(user("a"), Right::FullControl),
        Grant::new(user("b"), Right::ReadAcp),
    ]);
    for right in KINDS {
        assert!(acl.allows(Some("a"), right));
        assert_eq!(acl.allows(Some("b"), right), right == Right::ReadAcp);
        assert!(!acl.allows(Some("c"), right));
        assert!(!acl.allows(None, right));
    }
    assert_eq!(acl.users().into_iter().collect::<Vec<_>>(), ["a", "b"]);
}
