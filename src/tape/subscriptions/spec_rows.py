"""The rows of a checked document, with every default filled in."""

import re
from typing import Final

from tape.model.subscription_spec import (
    TIMEOUT_MS,
    CircuitSpec,
    DedupSpec,
    DirectiveSpec,
    DispatchSpec,
    DownstreamSpec,
    DrainSpec,
    HeaderSpec,
    HmacTemplate,
    IngressSpec,
    KedaSpec,
    RetentionSpec,
    RuntimeSpec,
    SignatureScheme,
    SourceKind,
    SourceSpec,
    SpoolSpec,
    SubscriptionSpec,
    VerifySpec,
)
from tape.subscriptions.document import (
    DispatchBlock,
    KedaBlock,
    RuntimeBlock,
    SubscriptionBlock,
    SubscriptionDocument,
)
from tape.subscriptions.document_fields import ID_HEADER
from tape.subscriptions.document_headers import DirectiveBlock, HeadersBlock
from tape.subscriptions.document_ingress import IngressBlock, VerifyBlock
from tape.subscriptions.document_spool import DownstreamBlock, SpoolBlock

_SCHEMES: Final = {
    "stripe-signature": SignatureScheme.STRIPE,
    "x-hub-signature-256": SignatureScheme.GITHUB,
    "x-slack-signature": SignatureScheme.SLACK,
    "x-shopify-hmac-sha256": SignatureScheme.SHOPIFY,
    "webhook-signature": SignatureScheme.STANDARD,
    "svix-signature": SignatureScheme.SVIX,
}


def spec_of(document: SubscriptionDocument) -> SubscriptionSpec:
    metadata, spec = document.metadata, document.spec
    runtime, limits = _runtime(spec.runtime, spec.source), spec.limits
    bounds = (limits and limits.max_in_flight, runtime.concurrency, runtime.max_in_flight)
    return SubscriptionSpec(
        name=metadata.name,
        path=metadata.path,
        mode=spec.mode,
        source=_source(spec),
        dispatch=_dispatch(spec.dispatch),
        activation=spec.activation or "",
        cadence=spec.cadence or "",
        runtime=runtime,
        headers=None if spec.headers is None else _headers(spec.headers),
        ingress=None if spec.ingress is None else _ingress(spec.ingress),
        spool=None if spec.spool is None else _spool(spec.spool, spec),
        dedup=None if spec.dedup is None else DedupSpec(spec.dedup.window_secs, spec.dedup.key),
        max_in_flight=min(bound for bound in bounds if bound),
        dispatch_per_sec=(limits and limits.max_dispatch_per_sec) or 0.0,
        keda=None if spec.scaling is None else _keda(spec.scaling.keda),
    )


def _source(spec: SubscriptionBlock) -> SourceSpec:
    return SourceSpec(
        kind=spec.source,
        auth=spec.auth or "",
        subscription=spec.subscription or "",
        stream=spec.stream or "",
        consumer=spec.consumer or "",
        topic=spec.topic or "",
        group=spec.group or "",
        folder=spec.folder or "",
        pattern=spec.pattern or "",
    )


def _runtime(runtime: RuntimeBlock, source: SourceKind) -> RuntimeSpec:
    return RuntimeSpec(
        target=runtime.target,
        pool=runtime.pool or "",
        batch=runtime.batch,
        timeout_ms=runtime.timeout_ms or TIMEOUT_MS.get(source, RuntimeSpec().timeout_ms),
        max_in_flight=runtime.max_in_flight,
        server_url=runtime.server_url or "",
        concurrency=runtime.concurrency or 0,
        max_instances=runtime.max_instances or 0,
    )


def _dispatch(dispatch: DispatchBlock) -> DispatchSpec:
    return DispatchSpec(
        app=dispatch.playbook,
        payload_from=dispatch.payload_from,
        execution_pool=dispatch.execution_pool,
        batch_dispatch=dispatch.batch_dispatch,
        batch_max=dispatch.batch_max,
    )


def _headers(headers: HeadersBlock) -> HeaderSpec:
    return HeaderSpec(
        normalize=headers.normalize,
        directives=tuple(map(_directive, headers.directives)),
        propagates_trace=headers.trace is not None,
        baggage_allowlist=tuple(headers.trace.baggage_allowlist) if headers.trace else (),
    )


def _directive(directive: DirectiveBlock) -> DirectiveSpec:
    return DirectiveSpec(
        header=directive.header,
        controls=directive.controls,
        allowed=tuple(directive.allowed or ()),
        pools=tuple(sorted((directive.map or {}).items())),
    )


def _ingress(ingress: IngressBlock) -> IngressSpec:
    message_id = ingress.message_id or ""
    is_header = re.fullmatch(ID_HEADER, message_id) is not None
    return IngressSpec(
        gateway_path=ingress.gateway_path,
        verify=_verify(ingress.verify),
        message_id_header=message_id.lower() if is_header else "",
        message_id_cel="" if is_header else message_id,
        ordering_key=ingress.ordering_key or "",
    )


def _verify(verify: VerifyBlock) -> VerifySpec:
    header = verify.header or ""
    template = HmacTemplate(
        parts=verify.parts,
        algorithm=verify.algorithm,
        encoding=verify.encoding,
        prefix=verify.prefix or "",
        secret_encoding=verify.secret_encoding,
        timestamp_header=verify.timestamp_header or "",
    )
    return VerifySpec(
        type=verify.type,
        header=header,
        secret=verify.secret or "",
        scheme=verify.scheme or _SCHEMES.get(header, SignatureScheme.RAW),
        template=template,
        tolerance_secs=verify.tolerance_secs,
        audience=verify.audience or "",
        service_account=verify.service_account or "",
        public_url=verify.public_url or "",
        jwks_url=verify.jwks_url or "",
        issuer=verify.issuer or "",
        topic_arns=tuple(verify.topic_arns or ()),
        confirm=verify.confirm,
    )


def _spool(spool: SpoolBlock, spec: SubscriptionBlock) -> SpoolSpec:
    app = spec.dispatch.playbook
    retention, drain = spool.retention, spool.drain
    return SpoolSpec(
        mode=spool.mode or ("buffer_and_ack" if spec.mode == "push" else "off"),
        backend=spool.backend or "",
        bucket=spool.bucket or "",
        auth=spool.auth or "",
        circuit=CircuitSpec(spool.circuit.trip_after, spool.circuit.probe_after_ms),
        downstreams=tuple(map(_downstream, spool.downstreams or ())) or (DownstreamSpec(app),),
        ordering=spool.ordering,
        ordering_key=spool.ordering_key or "",
        retention=RetentionSpec(retention.max_age_hours, retention.max_bytes, retention.on_full),
        drain=DrainSpec(drain.on_recovery, drain.rate_per_sec, drain.max_replay_attempts),
        hybrid_after_ms=spool.hybrid.after_ms if spool.hybrid else 0,
    )


def _downstream(downstream: DownstreamBlock) -> DownstreamSpec:
    probe = downstream.probe
    said = probe.model_dump(exclude_none=True) if probe else {}
    return DownstreamSpec(downstream.name, "".join(f"{kind} {at}" for kind, at in said.items()))


def _keda(keda: KedaBlock) -> KedaSpec:
    return KedaSpec(keda.trigger, keda.min or 0, keda.max or 0, keda.lag_threshold or 0)
