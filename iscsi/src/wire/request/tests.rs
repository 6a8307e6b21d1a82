use super::*;
use crate::wire::header::RESERVED_TAG;

fn numbers() -> Numbers {
    Numbers {
        cmd_sn: Serial(0x0102_0304),
        exp_stat_sn: Serial(0x0506_0708),
        immediate: true,
    }
}

fn command(cdb: &[u8], expected_read_bytes: Option<u32>) -> Request {
    Request::ScsiCommand(ScsiCommand {
        is_final: true,
        reads: false,
        writes: true,
        attribute: TaskAttribute::Simple,
        lun: 1 << 48,
        itt: 7,
        expected_bytes: 8_192,
        numbers: numbers(),
        cdb: Bytes::copy_from_slice(cdb),
        expected_read_bytes,
        immediate_data: Bytes::from_static(b"immediate"),
    })
}

fn all() -> Vec<Request> {
    let data = Bytes::from_static(b"data");
    let mut all = vec![
        command(&[0x2a; 16], None),
        command(&[0x7f; 32], Some(512)),
        command(&[0x7f; 260], None),
        Request::NopOut(NopOut {
            lun: 3,
            itt: RESERVED_TAG,
            ttt: 9,
            numbers: numbers(),
            data: data.clone(),
        }),
        Request::Login(Login {
            transit: true,
            continues: false,
            current_stage: Stage::SecurityNegotiation,
            next_stage: Stage::FullFeaturePhase,
            version_max: 0,
            version_min: 0,
            isid: [0, 2, 0x3d, 1, 2, 3],
            tsih: 0x1234,
            itt: 5,
            cid: 0x4321,
            numbers: numbers(),
            data: data.clone(),
        }),
        Request::Text(Text {
            is_final: false,
            continues: true,
            lun: 0,
            itt: 6,
            ttt: RESERVED_TAG,
            numbers: numbers(),
            data: data.clone(),
        }),
        Request::DataOut(DataOut {
            is_final: true,
            lun: 1 << 48,
            itt: 7,
            ttt: 8,
            exp_stat_sn: Serial(9),
            data_sn: 10,
            buffer_offset: 11,
            data,
            has_wrong_data: false,
        }),
        Request::Snack(Snack {
            kind: 1,
            lun: 2,
            itt: 3,
            ttt: 4,
            exp_stat_sn: Serial(5),
            begin: 6,
            length: 7,
        }),
    ];
    all.extend(with_codes());
    all
}

fn with_codes() -> Vec<Request> {
    let mut all = Vec::new();
    let functions = TaskFunction::CODES
        .into_iter()
        .map(|(function, _)| function);
    for function in functions.chain([TaskFunction::Other(0x7f)]) {
        all.push(Request::TaskManagement(TaskManagement {
            function,
            lun: 1,
            itt: 2,
            referenced_itt: 3,
            numbers: numbers(),
            ref_cmd_sn: Serial(4),
            exp_data_sn: 5,
        }));
    }
    for reason in [
        LogoutReason::CloseSession,
        LogoutReason::CloseConnection,
        LogoutReason::RemoveConnectionForRecovery,
    ] {
        all.push(Request::Logout(Logout {
            reason,
            itt: 1,
            cid: 2,
            numbers: numbers(),
        }));
    }
    all
}

#[test]
fn what_is_written_is_read_again() {
    for request in all() {
        assert_eq!(Request::decode(request.encode()), Ok(request));
    }
}

/// A WRITE(10) of 16 blocks as open-iscsi sends it.
#[test]
fn a_command_lies_where_the_standard_says() {
    let mut header = [0; 48];
    header[..8].copy_from_slice(&[0x01, 0xa1, 0, 0, 0, 0, 0, 0]);
    header[8..16].copy_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0]);
    header[16..32].copy_from_slice(&[
        0x10, 0, 0, 0x2d, 0, 0, 0x20, 0, 0, 0, 0, 0x2e, 0x6f, 0x1a, 0x5d, 0x22,
    ]);
    header[32..42].copy_from_slice(&[0x2a, 0, 0, 0, 0x40, 0, 0, 0, 0x10, 0]);
    let frame = Frame {
        header: Header(header),
        ahs: Bytes::new(),
        data: Bytes::new(),
        has_wrong_data: false,
    };
    let Ok(Request::ScsiCommand(command)) = Request::decode(frame) else {
        panic!("a command");
    };
    assert!(command.is_final && command.writes && !command.reads);
    assert_eq!(command.attribute, TaskAttribute::Simple);
    assert_eq!((command.lun, command.itt), (1 << 48, 0x1000_002d));
    assert_eq!(command.expected_bytes, 8_192);
    assert_eq!(command.numbers.cmd_sn, Serial(0x2e));
    assert!(!command.numbers.immediate);
    assert_eq!(command.cdb[..10], header[32..42]);
}

#[test]
fn malformed_headers_are_named() {
    let with = |opcode: u8, flags: u8, ahs: &[u8]| {
        let mut header = Header::new(opcode);
        header.set_u8(place::FLAGS, flags);
        let frame = framed(header, Bytes::copy_from_slice(ahs), &Bytes::new());
        Request::decode(frame).unwrap_err()
    };
    assert_eq!(with(0x07, 0, b""), WireError::Opcode(0x07));
    assert_eq!(with(0x21, 0, b""), WireError::Opcode(0x21));
    assert_eq!(with(SCSI_COMMAND, 0x87, b""), WireError::Field("ATTR"));
    assert_eq!(with(LOGIN, 0x08, b""), WireError::Field("CSG or NSG"));
    assert_eq!(with(LOGIN, 0x82, b""), WireError::Field("CSG or NSG"));
    assert_eq!(with(LOGOUT, 0x83, b""), WireError::Field("Reason Code"));
    let long = [&[0, 246, 1, 0][..], &[0; 248]].concat();
    for ahs in [
        &[0, 0, 1, 0][..],
        &[0, 9, 1, 0, 1, 2, 3, 4],
        &[0, 5, 3, 0, 1, 2, 3, 4],
        &[0, 4, 2, 0, 1, 2, 3, 4],
        &[0, 2, 1, 0, 1, 0, 0, 0, 0, 2, 1, 0, 1, 0, 0, 0],
        &long,
    ] {
        let error = with(SCSI_COMMAND, 0x80, ahs);
        assert_eq!(error, WireError::AdditionalHeader, "{ahs:?}");
    }
}
