"""The block `spec.ingress`: where deliveries come in, and how they are verified."""

from typing import Annotated, Final, Literal

from pydantic import ConfigDict

from tape.model.subscription_spec import HmacTemplate, SignatureScheme, VerifyType
from tape.subscriptions.document_block import DocumentBlock, means
from tape.subscriptions.document_fields import (
    DAY_S,
    Between,
    GatewayPath,
    HeaderName,
    HttpUrl,
    KeySetUrl,
    KeyText,
    ServiceAccount,
    SignatureParts,
    Text,
    TopicArn,
    Word,
)
from tape.subscriptions.document_keys import VERIFY_KEYS, conditions

_TEMPLATE: Final = HmacTemplate()


class VerifyBlock(DocumentBlock):
    """How a delivery proves who sent it."""

    model_config = ConfigDict(json_schema_extra=conditions("type", VERIFY_KEYS))

    type: Annotated[VerifyType, Word] = means("The kind of proof.")
    header: HeaderName | None = means("The header that holds the signature or key.", None)
    secret: Text | None = means("The alias of the secret in the wallet; never the secret.", None)
    scheme: Annotated[SignatureScheme, Word] | None = means(
        "Whose signatures these are; by default what the name of the header says, else raw.", None
    )
    tolerance_secs: Annotated[int, Between(1, DAY_S)] = means(
        "How far the time of a signature may be off, either way.", 300
    )
    parts: SignatureParts = means(
        "What is signed: {body}, and {id}, {timestamp} and {url} if they are part of it.",
        _TEMPLATE.parts,
    )
    algorithm: Literal["sha1", "sha256", "sha512"] = means(
        "The hash of the signature.", _TEMPLATE.algorithm
    )
    encoding: Literal["hex", "base64", "base64url"] = means(
        "How the signature is written.", _TEMPLATE.encoding
    )
    prefix: Text | None = means("What stands before the signature in its header.", None)
    secret_encoding: Literal["text", "base64"] = means(
        "How the secret is written.", _TEMPLATE.secret_encoding
    )
    timestamp_header: HeaderName | None = means(
        "The header with the time that is signed, in seconds since 1970.", None
    )
    public_url: HttpUrl | None = means("The URL that the sender calls, as it signs it.", None)
    audience: Text | None = means("The audience of the token, exactly.", None)
    service_account: ServiceAccount | None = means(
        "The service account whose tokens are accepted.", None
    )
    jwks_url: KeySetUrl | None = means("Where the keys of the issuer are.", None)
    issuer: Text | None = means("The issuer of the token, exactly.", None)
    topic_arns: list[TopicArn] | None = means("The topics that are accepted.", None, min_length=1)
    confirm: bool = means(
        "Whether a subscription to a topic is confirmed by itself.", default=False
    )


class IngressBlock(DocumentBlock):
    """Where deliveries come in, and how they are verified."""

    gateway_path: GatewayPath = means("The path of the endpoint; no two subscriptions share one.")
    verify: VerifyBlock = means("How a delivery proves who sent it. Every push is verified.")
    message_id: KeyText | None = means(
        "Where the id of a delivery is, if its scheme has none: a header, or CEL over payload and "
        "message.",
        None,
    )
    ordering_key: KeyText | None = means(
        "Deliveries with the same key run one after another: a field of the JSON body, or CEL.",
        None,
    )
