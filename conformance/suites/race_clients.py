"""The clients of a storm over several gateways, each kind with the sentence that it holds the store to.

A request ends in one of three ways: acknowledged, refused (it did nothing), or unknown: it may have
happened, or may yet happen until a later change of that key is acknowledged. Gateways are killed all
the time, so unknown is usual; a timeout is not.
"""

import concurrent.futures
import hashlib
import random
import threading
import time

from botocore.exceptions import ClientError, ReadTimeoutError
from s3_clients.context import boto
from s3_kill import BUCKET, CUT, Key, Worker, digest

LONG_BYTES = 12 << 20
LONG_READ_SECONDS = 3
RIVALS = 8
ANSWER_SECONDS_MAX = 120
PAUSE_SECONDS = 0.2


class AnyGateway:
    """Looks like a client of boto3; each call goes to one of the gateways."""

    def __init__(self, servers: list):
        endpoints = [endpoint for server in servers for endpoint in server.endpoints()[:1]]
        limits = {"read_timeout": ANSWER_SECONDS_MAX, "connect_timeout": 5, "max_pool_connections": 128}
        self.clients = [boto(endpoint, **limits) for endpoint in endpoints]

    def __getattr__(self, name: str):
        return getattr(random.choice(self.clients), name)


class Unknown(Exception):
    """Nobody can say whether it happened."""


class Refused(Exception):
    """It did not happen; the status says why."""

    def __init__(self, status: int, error: ClientError):
        super().__init__(str(error))
        self.status = status


def ask(request):
    """The answer to a request, or how it ended."""
    try:
        return request()
    except ClientError as error:
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        raise (Unknown if status >= 500 else lambda text: Refused(status, error))(str(error)) from error
    except ReadTimeoutError as error:
        raise AssertionError(f"no answer within {ANSWER_SECONDS_MAX} s") from error
    except CUT as error:
        raise Unknown(str(error)) from error


class Client(threading.Thread):
    """Repeats its turn until told to stop; what is wrong ends it and is kept as `error`."""

    holds = ""

    def __init__(self, gateways: AnyGateway, stop: threading.Event, seed: int):
        threading.Thread.__init__(self, daemon=True)
        self.client = gateways
        self.stop_asked = stop
        self.random = random.Random(seed)
        self.error: Exception | None = None
        self.turns = 0
        self.unknown = 0

    def run(self):
        while not self.stop_asked.is_set():
            try:
                self.turn()
                self.turns += 1
            except Unknown:
                self.unknown += 1
                time.sleep(PAUSE_SECONDS)
            except Exception as error:
                self.error = error
                return

    def turn(self) -> None:
        raise NotImplementedError

    def finished(self) -> None:
        """What can be said of the kind only when the storm is over."""


class Owner(Client, Worker):
    """Puts, copies, uploads in parts and deletes keys of its own, and reads them through any gateway."""

    holds = "owners read what was acknowledged last, or what was asked for since"

    def __init__(self, gateways: AnyGateway, stop: threading.Event, seed: int, keys: dict[str, Key]):
        Client.__init__(self, gateways, stop, seed)
        self.keys = keys
        self.acknowledged = 0

    def turn(self) -> None:
        if self.random.random() < 0.3:
            return self.look(self.random.choice(list(self.keys)))
        return ask(lambda: Worker.turn(self))

    def look(self, name: str) -> None:
        key = self.keys[name]
        state = stored(self.client, name)
        assert key.allows(state), f"{name} holds {state}, acknowledged was {key.acknowledged}, asked {key.asked}"


class Rivalry(Client):
    """Many create one key at the same time, on condition that it is not there."""

    holds = "of rivals with If-None-Match exactly one wins"

    def __init__(self, gateways: AnyGateway, stop: threading.Event, seed: int, keys: dict[str, Key]):
        super().__init__(gateways, stop, seed)
        self.keys = keys
        self.pool = concurrent.futures.ThreadPoolExecutor(RIVALS)

    def turn(self) -> None:
        name = f"rival/{id(self)}-{self.turns + self.unknown:05}"
        bodies = [b"%s %d" % (name.encode(), number) * (1 + number * 300) for number in range(RIVALS)]
        outcomes = list(self.pool.map(lambda body: self.rival(name, body), bodies))
        won = [body for body, outcome in zip(bodies, outcomes) if outcome == "won"]
        open_ = [body for body, outcome in zip(bodies, outcomes) if outcome == "unknown"]
        assert len(won) <= 1, f"{name}: {len(won)} rivals won"
        assert won or open_, f"{name}: nobody won"
        self.keys[name] = key = Key()
        if won:
            key.acknowledged = digest(won[0])
        else:
            key.asked = [digest(body) for body in open_]
        state = stored(self.client, name)
        assert key.allows(state), f"{name} holds not what the winner sent"
        assert state or 412 not in outcomes, f"{name}: somebody was told that it is there, and it is not"

    def rival(self, name: str, body: bytes):
        try:
            ask(lambda: self.client.put_object(Bucket=BUCKET, Key=name, Body=body, IfNoneMatch="*"))
            return "won"
        except Unknown:
            return "unknown"
        except Refused as refused:
            assert refused.status in (409, 412), str(refused)
            return refused.status


class Swapper(Client):
    """Adds lines to an object shared with others, on condition that it is as it was read."""

    holds = "chains of If-Match lose no step and repeat none"

    def __init__(self, gateways: AnyGateway, stop: threading.Event, seed: int, name: str):
        super().__init__(gateways, stop, seed)
        self.name_of_key = name
        self.mine = f"{seed:x}"
        self.acknowledged: list[str] = []
        self.asked: set[str] = set()

    def turn(self) -> None:
        answer = ask(lambda: self.client.get_object(Bucket=BUCKET, Key=self.name_of_key))
        body = ask(lambda: answer["Body"].read())
        self.check(body.decode().split())
        step = f"{self.mine}-{self.turns + self.unknown}"
        following = body + step.encode() + b"\n"
        self.asked.add(step)
        try:
            ask(lambda: self.client.put_object(
                Bucket=BUCKET, Key=self.name_of_key, Body=following, IfMatch=answer["ETag"]))
            self.acknowledged.append(step)
        except Refused as refused:
            assert refused.status in (409, 412), str(refused)
            self.asked.discard(step)

    def check(self, lines: list[str]) -> None:
        mine = [line for line in lines if line.rsplit("-", 1)[0] == self.mine]
        assert len(mine) == len(set(mine)), f"{self.name_of_key}: a step happened twice"
        lost = set(self.acknowledged) - set(mine)
        assert not lost, f"{self.name_of_key}: acknowledged and lost: {sorted(lost)[:5]}"
        more = set(mine) - self.asked
        assert not more, f"{self.name_of_key}: refused, and happened: {sorted(more)[:5]}"

    def finished(self) -> None:
        body = self.client.get_object(Bucket=BUCKET, Key=self.name_of_key)["Body"].read()
        self.check(body.decode().split())


class Ender(Client):
    """Completes an upload twice and aborts it, all at the same time."""

    holds = "of complete and abort one wins, and what it says holds"

    def __init__(self, gateways: AnyGateway, stop: threading.Event, seed: int, keys: dict[str, Key]):
        super().__init__(gateways, stop, seed)
        self.keys = keys
        self.pool = concurrent.futures.ThreadPoolExecutor(3)

    def turn(self) -> None:
        name = f"end/{id(self)}-{self.turns + self.unknown:05}"
        which, body = {"Bucket": BUCKET, "Key": name}, self.random.randbytes(100_000)
        which["UploadId"] = ask(lambda: self.client.create_multipart_upload(**which))["UploadId"]
        part = ask(lambda: self.client.upload_part(**which, PartNumber=1, Body=body))
        parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
        # Until it is known what won.
        self.keys[name] = key = Key(asked=[digest(body)])
        requests = [lambda: self.client.complete_multipart_upload(**which, MultipartUpload=parts)] * 2
        requests.append(lambda: self.client.abort_multipart_upload(**which))
        *completed, aborted = self.pool.map(self.end, requests)
        assert aborted != "won" or "won" not in completed, f"{name}: completed and aborted"
        assert "won" in (*completed, aborted) or "unknown" in (*completed, aborted), f"{name}: neither won"
        if "won" in completed:
            key.acknowledged, key.asked = digest(body), []
        elif aborted == "won":
            key.asked = []
        state = stored(self.client, name)
        assert key.allows(state), f"{name} holds {state} after {completed} and {aborted}"

    def end(self, request) -> str:
        try:
            ask(request)
            return "won"
        except Unknown:
            return "unknown"
        except Refused as refused:
            assert refused.status == 404, str(refused)
            return "lost"


class Overwriter(Client):
    """Overwrites one large object without pause."""

    holds = "large objects can be overwritten all the time"

    def __init__(self, gateways: AnyGateway, stop: threading.Event, seed: int, name: str, key: Key):
        super().__init__(gateways, stop, seed)
        self.name_of_key, self.key = name, key
        self.tags: set[str] = set()

    def turn(self) -> None:
        body = self.random.randbytes(1 << 20) * (LONG_BYTES >> 20) + b"%d" % self.turns
        self.tags.add(f'"{hashlib.md5(body).hexdigest()}"')
        state = digest(body)
        self.key.asked.append(state)
        ask(lambda: self.client.put_object(Bucket=BUCKET, Key=self.name_of_key, Body=body))
        self.key.acknowledged = state
        self.key.asked.clear()


class SlowReader(Client):
    """Reads what is being overwritten, slowly."""

    holds = "a GET gives one whole version or breaks off"

    def __init__(self, gateways: AnyGateway, stop: threading.Event, seed: int, writer: Overwriter):
        super().__init__(gateways, stop, seed)
        self.writer = writer
        self.across = 0
        self.cut = 0

    def turn(self) -> None:
        before = self.writer.turns
        try:
            answer = ask(lambda: self.client.get_object(Bucket=BUCKET, Key=self.writer.name_of_key))
        except Refused as refused:
            assert refused.status == 404 and not before, str(refused)
            time.sleep(PAUSE_SECONDS)
            return
        found = hashlib.md5()
        try:
            for chunk in answer["Body"].iter_chunks(1 << 20):
                found.update(chunk)
                time.sleep(LONG_READ_SECONDS / (LONG_BYTES >> 20))
        except CUT:
            self.cut += 1
            return
        tag = f'"{found.hexdigest()}"'
        assert tag == answer["ETag"], f"{self.writer.name_of_key}: a whole answer that is not one version"
        assert tag in self.writer.tags, f"{self.writer.name_of_key}: a version that nobody sent"
        self.across += self.writer.turns > before

    def finished(self) -> None:
        assert self.across, f"no whole GET outlived an overwrite; {self.cut} broke off"


class Filler(Client):
    """Puts ever more keys, so that shards split."""

    holds = "keys are put while shards split"

    def __init__(self, gateways: AnyGateway, stop: threading.Event, seed: int, keys: dict[str, Key]):
        super().__init__(gateways, stop, seed)
        self.keys = keys

    def turn(self) -> None:
        name = f"fill/{self.random.randrange(16):x}/{self.turns + self.unknown:06}-{id(self):x}"
        self.keys[name] = key = Key(asked=[digest(name.encode())])
        ask(lambda: self.client.put_object(Bucket=BUCKET, Key=name, Body=name.encode()))
        key.acknowledged, key.asked = digest(name.encode()), []


class Lister(Client):
    """Lists what the fillers put."""

    holds = "a listing has all that was acknowledged, once, in order"

    def __init__(self, gateways: AnyGateway, stop: threading.Event, seed: int, fillers: list[Filler]):
        super().__init__(gateways, stop, seed)
        self.fillers = fillers

    def turn(self) -> None:
        before = {name for filler in self.fillers for name, key in list(filler.keys.items()) if key.acknowledged}
        listed, request = [], {"Bucket": BUCKET, "Prefix": "fill/", "MaxKeys": self.random.choice([50, 1000])}
        while True:
            page = ask(lambda: self.client.list_objects_v2(**request))
            listed += [item["Key"] for item in page.get("Contents", [])]
            if not page["IsTruncated"]:
                break
            request["ContinuationToken"] = page["NextContinuationToken"]
        after = {name for filler in self.fillers for name in list(filler.keys)}
        assert listed == sorted(set(listed)), "a listing has a key twice or out of order"
        missing, more = before - set(listed), set(listed) - after
        assert not missing, f"acknowledged and not listed: {len(missing)}, among them {sorted(missing)[:3]}"
        assert not more, f"listed and never put: {sorted(more)[:3]}"


def stored(client, name: str) -> str | None:
    """The state of a key: the digest of its bytes, or None."""
    try:
        answer = ask(lambda: client.get_object(Bucket=BUCKET, Key=name))
    except Refused as refused:
        assert refused.status == 404, str(refused)
        return None
    body = ask(lambda: answer["Body"].read())
    assert len(body) == answer["ContentLength"], f"{name}: {len(body)} bytes of {answer['ContentLength']}"
    return digest(body)


