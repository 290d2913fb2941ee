# SPDX-License-Identifier: Apache-2.0
"""Reader of an S3 bucket that the adapter s3 keeps its entries in.

Sends GET requests alone: ListObjectsV2, and GetObject where bytes are asked
for. Credentials come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
AWS_SESSION_TOKEN, the region from AWS_REGION or AWS_DEFAULT_REGION; none of
them is ever shown. Requests are signed by awscrt, which LMCache's s3 adapter
needs as well, and name the bucket in their path. Uploads that were not
completed are not listed by S3.

Source: LMCache 0.5.4 and 0.5.6, l2_adapters/s3_l2_adapter.py
`_format_safe_path`, `_list_request`: names are URL-quoted on the way and plain
in the bucket. Amazon S3 API reference, ListObjectsV2.
"""

from __future__ import annotations

import http.client
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import SplitResult, quote, unquote_plus, urlencode, urlsplit
from xml.etree import ElementTree

from kvseal.audit.classify import Found
from kvseal.errors import OptionError, PrerequisiteError, StoreError

TIMEOUT_SECONDS = 60.0
MAX_PAGE_BYTES = 64 << 20
"""A page lists 1000 objects, whose names have 1024 bytes at most."""
DEFAULT_REGION = "us-east-1"
_GONE = (http.client.NOT_FOUND, http.client.REQUESTED_RANGE_NOT_SATISFIABLE)
"""The object was deleted since it was listed, or is shorter."""
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


class BucketStore:
    """One bucket of the server at `endpoint`, an http or https URL.

    Raises:
        OptionError: the endpoint or the bucket's name is none.
        PrerequisiteError: there are no credentials in the environment.
    """

    kind = "s3"
    file_names = False

    def __init__(
        self, endpoint: str, bucket: str, environment: Mapping[str, str] = os.environ
    ) -> None:
        url = _endpoint(endpoint)
        if not _BUCKET.fullmatch(bucket):
            raise OptionError(
                "no name of a bucket",
                option="--bucket",
                value=bucket,
                expected="3 to 63 lowercase letters, digits, dots and hyphens",
            )
        self._host = url.netloc
        self._path = f"{url.path.rstrip('/')}/{bucket}"
        self.name = f"{url.scheme}://{self._host}{self._path}"
        self._region = (
            environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or DEFAULT_REGION
        )
        self._secrets = _credentials(environment)
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(self._host, timeout=TIMEOUT_SECONDS)
        self._signer: _Signer | None = None

    def __iter__(self) -> Iterator[Found]:
        """Yield all objects, in the order of their names."""
        token = ""
        try:
            while True:
                page = self._page(token)
                yield from _objects(page)
                following = page.findtext("NextContinuationToken") or ""
                if page.findtext("IsTruncated") != "true":
                    return
                if following in ("", token):
                    raise self._unreadable("its listing says that it goes on, but not where")
                token = following
        finally:
            self._connection.close()

    def read(self, found: Found, offset: int, size: int) -> bytes:
        """Return bytes of an object; none where it is gone."""
        name = quote(found.name.encode("utf-8", "surrogateescape"))
        asked = {"range": f"bytes={offset}-{offset + size - 1}"}
        status, part, body = self._get(f"{quote(self._path)}/{name}", asked, size)
        if status in _GONE:
            return b""
        # rclone answers a part with status 200; where it begins is what counts.
        if not part.startswith(f"bytes {offset}-"):
            raise self._unreadable(f"status {status} for a part of an object")
        return body

    def _page(self, token: str) -> ElementTree.Element:
        query = {"encoding-type": "url", "list-type": "2"}
        if token:
            query["continuation-token"] = token
        # Sorted and quoted as the signature has it.
        asked = urlencode(sorted(query.items()), quote_via=quote, safe="")
        status, _, body = self._get(f"{quote(self._path)}?{asked}", {}, MAX_PAGE_BYTES)
        page = _parsed(body)
        if status != http.client.OK:
            # The code alone: S3 repeats the access key in what stands beside it.
            code = page.findtext("Code") if page is not None else None
            raise self._unreadable(f"status {status}, {code or 'no reason given'}")
        if page is None or page.tag != "ListBucketResult":
            raise self._unreadable("its answer is no listing of objects")
        return page

    def _get(self, path: str, headers: dict[str, str], longest: int) -> tuple[int, str, bytes]:
        """Return status, which part of an object it is, and up to `longest` bytes."""
        if self._signer is None:
            self._signer = _Signer(self._secrets, self._region)
        signed = self._signer.headers(self._host, path)
        try:
            self._connection.request("GET", path, headers=signed | headers)
            answer = self._connection.getresponse()
            body, part = answer.read(longest), answer.headers.get("Content-Range", "")
            if not answer.isclosed():  # there is more, and the next answer must begin clean
                self._connection.close()
        except (OSError, http.client.HTTPException) as error:
            raise self._unreadable(str(error) or type(error).__name__) from None
        return answer.status, part, body

    def _unreadable(self, why: str) -> StoreError:
        return StoreError(
            f"the bucket can't be read: {why}",
            option="--s3",
            value=self.name,
            expected="a bucket that these credentials may read",
            remedy="check the endpoint, the region (AWS_REGION) and the AWS_ credentials",
        )


class _Signer:
    """Makes the headers of a signed GET request, with awscrt."""

    def __init__(self, secrets: tuple[str, str, str | None], region: str) -> None:
        try:
            from awscrt import auth, http
        except ImportError:
            raise PrerequisiteError(
                "an S3 bucket can't be read without the awscrt package",
                option="--s3",
                expected="a Python with the package awscrt",
                remedy="run this with the engine environment's Python, where LMCache brought it",
            ) from None
        self._auth: Any = auth
        self._http: Any = http
        self._config = auth.AwsSigningConfig(
            algorithm=auth.AwsSigningAlgorithm.V4,
            signature_type=auth.AwsSignatureType.HTTP_REQUEST_HEADERS,
            credentials_provider=auth.AwsCredentialsProvider.new_static(*secrets),
            region=region,
            service="s3",
            use_double_uri_encode=False,
            should_normalize_uri_path=False,
            signed_body_value=auth.AwsSignedBodyValue.EMPTY_SHA256,
            signed_body_header_type=auth.AwsSignedBodyHeaderType.X_AMZ_CONTENT_SHA_256,
        )

    def headers(self, host: str, path: str) -> dict[str, str]:
        """Return the headers that authorize a GET of `path`."""
        request = self._http.HttpRequest("GET", path, self._http.HttpHeaders([("host", host)]))
        self._auth.aws_sign_request(request, self._config).result(TIMEOUT_SECONDS)
        return dict(request.headers)


def _objects(page: ElementTree.Element) -> Iterator[Found]:
    quoted = page.findtext("EncodingType") == "url"
    for item in page.findall("Contents"):
        name = item.findtext("Key") or ""
        size = item.findtext("Size") or ""
        yield Found(
            unquote_plus(name, errors="surrogateescape") if quoted else name,
            int(size) if size.isdecimal() else 0,
        )


def _parsed(body: bytes) -> ElementTree.Element | None:
    if b"<!" in body:  # S3 has no document types, and entities can be made to grow
        return None
    try:
        page = ElementTree.fromstring(body)  # noqa: S314 - no entities, see above
    except ElementTree.ParseError:
        return None
    for element in page.iter():
        element.tag = element.tag.rpartition("}")[2]
    return page


def _endpoint(text: str) -> SplitResult:
    try:
        url = urlsplit(text)
        _ = url.port
    except ValueError:
        url = urlsplit("")
    if "@" in url.netloc or url.query or url.fragment:
        raise OptionError(
            "an endpoint holds no credentials and no query",
            option="--s3",
            expected="http://HOST:PORT or https://HOST",
            remedy="credentials go into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )
    if url.scheme not in ("http", "https") or not url.hostname:
        raise OptionError(
            "no endpoint of an S3 server",
            option="--s3",
            value=text,
            expected="http://HOST:PORT or https://HOST, without the bucket",
        )
    return url


def _credentials(environment: Mapping[str, str]) -> tuple[str, str, str | None]:
    key, secret = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    if not key or not secret:
        raise PrerequisiteError(
            "there are no credentials for S3",
            option="AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            expected="both in the environment; AWS_SESSION_TOKEN too where they are temporary",
            remedy="set them to credentials that may list the bucket",
        )
    return key, secret, environment.get("AWS_SESSION_TOKEN") or None
