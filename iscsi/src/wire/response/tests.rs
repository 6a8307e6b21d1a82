use super::*;

const NUMBERS: Numbers = Numbers {
    stat_sn: Serial(0x0102_0304),
    exp_cmd_sn: Serial(0x0506_0708),
    max_cmd_sn: Serial(0x090a_0b0c),
};

fn data_in(status: Option<(u8, Residual)>) -> Response {
    let mut numbers = NUMBERS;
    if status.is_none() {
        numbers.stat_sn = Serial(0);
    }
    Response::DataIn(DataIn {
        is_final: true,
        acknowledge: false,
        status,
        lun: 1 << 48,
        itt: 2,
        ttt: RESERVED_TAG,
        numbers,
        data_sn: 3,
        buffer_offset: 4,
        data: Bytes::from_static(b"data"),
    })
}

fn all() -> Vec<Response> {
    let data = Bytes::from_static(b"data");
    let mut all = vec![
        data_in(None),
        data_in(Some((0, Residual::Underflow(9)))),
        data_in(Some((0, Residual::Overflow(9)))),
        Response::NopIn(NopIn {
            lun: 0,
            itt: 1,
            ttt: RESERVED_TAG,
            numbers: NUMBERS,
            data: data.clone(),
        }),
        Response::Scsi(ScsiResponse {
            response: 0,
            status: 2,
            residual: Residual::Underflow(512),
            read_residual: Residual::Overflow(1),
            itt: 1,
            numbers: NUMBERS,
            exp_data_sn: 7,
            data: data.clone(),
        }),
        Response::Text(TextResponse {
            is_final: true,
            continues: false,
            lun: 0,
            itt: 1,
            ttt: RESERVED_TAG,
            numbers: NUMBERS,
            data: data.clone(),
        }),
        Response::ReadyToTransfer(ReadyToTransfer {
            lun: 1,
            itt: 2,
            ttt: 3,
            numbers: NUMBERS,
            r2t_sn: 4,
            buffer_offset: 5,
            desired_bytes: 6,
        }),
    ];
    all.extend(with_codes());
    all
}

fn with_codes() -> Vec<Response> {
    let data = Bytes::from_static(b"data");
    let mut all = Vec::new();
    for (status, _) in LoginStatus::CODES {
        all.push(Response::Login(LoginResponse {
            transit: true,
            continues: false,
            current_stage: Stage::LoginOperationalNegotiation,
            next_stage: Stage::FullFeaturePhase,
            version_max: 0,
            version_active: 0,
            isid: [1, 2, 3, 4, 5, 6],
            tsih: 7,
            itt: 8,
            numbers: NUMBERS,
            status,
            data: data.clone(),
        }));
    }
    for (response, _) in TaskOutcome::CODES {
        all.push(Response::TaskManagement(TaskManagementResponse {
            response,
            itt: 1,
            numbers: NUMBERS,
        }));
    }
    for (response, _) in LogoutOutcome::CODES {
        all.push(Response::Logout(LogoutResponse {
            response,
            itt: 1,
            numbers: NUMBERS,
            time2wait_s: 2,
            time2retain_s: 3,
        }));
    }
    for (event, _) in AsyncEvent::CODES {
        all.push(Response::AsyncMessage(AsyncMessage {
            event,
            lun: 1,
            numbers: NUMBERS,
            parameters: [2, 3, 4],
            data: data.clone(),
        }));
    }
    for (reason, _) in RejectReason::CODES {
        all.push(Response::Reject(Reject {
            reason,
            numbers: NUMBERS,
            data_sn: 1,
            header: Bytes::from_static(&[0x55; 48]),
        }));
    }
    all
}

#[test]
fn what_is_written_is_read_again() {
    for response in all() {
        assert_eq!(Response::decode(response.encode()), Ok(response));
    }
}

/// GOOD with the status in the last Data-In, as initiators compare it byte by byte.
#[test]
fn data_lies_where_the_standard_says() {
    let frame = data_in(Some((0x02, Residual::Underflow(0x0a0b)))).encode();
    let header = frame.header.0;
    assert_eq!(header[..8], [0x25, 0x83, 0, 0x02, 0, 0, 0, 4]);
    assert_eq!(header[8..16], [0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(header[16..24], [0, 0, 0, 2, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(header[24..36], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    assert_eq!(header[36..], [0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0x0a, 0x0b]);
}

#[test]
fn malformed_headers_are_named() {
    let with = |opcode: u8, at: usize, value: u8| {
        let mut header = Header::new(opcode);
        header.set_u8(at, value);
        Response::decode(framed(header, Bytes::new(), &Bytes::new()))
    };
    let field = |name| Err(WireError::Field(name));
    assert_eq!(with(0x01, 0, 0x01), Err(WireError::Opcode(0x01)));
    assert_eq!(with(SCSI, 1, OVERFLOW | UNDERFLOW), field("residual flags"));
    assert_eq!(with(TASK_MANAGEMENT, RESPONSE, 7), field("Response"));
    assert_eq!(with(LOGIN, 36, 9), field("Status"));
    assert_eq!(with(REJECT, RESPONSE, 1), field("Reason"));
    assert_eq!(with(ASYNC_MESSAGE, ASYNC_EVENT, 6), field("AsyncEvent"));
}
