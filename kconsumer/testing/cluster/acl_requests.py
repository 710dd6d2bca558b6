"""CreateAcls, DescribeAcls and DeleteAcls.

As in Kafka, they respond with SECURITY_DISABLED if the brokers have no authorizer: if `authorizer.class.name` is empty
and `FakeCluster.allow` was not called.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from kconsumer._common.error_codes import Errors
from kconsumer.schema.acls import (
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    LITERAL,
    AclCreation,
    AclCreationResult,
    AclDescription,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from kconsumer.schema.dsl import Message
from kconsumer.testing.cluster.acls import (
    ANY_NAME,
    CLUSTER,
    CLUSTER_NAME,
    GROUP,
    NUMBERS,
    TOPIC,
    TRANSACTIONAL_ID,
    Acl,
)
from kconsumer.testing.cluster.error_responses import error_response
from kconsumer.testing.cluster.requests import Request, handles
from kconsumer.testing.cluster.state import ClusterHandlers

RESOURCE_TYPES = {TOPIC: 2, GROUP: 3, CLUSTER: 4, TRANSACTIONAL_ID: 5}
ANY, MATCH, PREFIXED = 1, 2, 4  # a value of a filter that matches all, and pattern types
DENY, ALLOW = 2, 3


class AclRequests(ClusterHandlers):
    """Handles the requests that read and change access control lists."""

    def _refused(self, request: Request, operation: str) -> Message | None:
        """Returns the error response to a request if there is no authorizer, or if the client may not send it."""
        if not self._cluster.acls.enabled:
            error, text = Errors.SECURITY_DISABLED, "The brokers have no authorizer."
        elif not self._cluster.acls.allowed(request, operation, CLUSTER, CLUSTER_NAME):
            error, text = Errors.CLUSTER_AUTHORIZATION_FAILED, "The client may not do this."
        else:
            return None
        response: Any = error_response(self._cluster.topics, request, error)
        rows = getattr(response, "results", None) or getattr(response, "filter_results", None)
        for row in rows or [response]:
            row.error_message = text
        message: Message = response
        return message

    @handles(DESCRIBE_ACLS)
    def _describe(self, request: Request, _: float) -> Message:
        refused = self._refused(request, "DESCRIBE")
        if refused is not None:
            return refused
        found = [acl for acl in self._cluster.acls.rows() if _matches(request.message, acl)]
        resources = [
            DescribeAclsResource(
                resource_type=RESOURCE_TYPES[kind],
                resource_name=name,
                pattern_type=PREFIXED if prefixed else LITERAL,
                acls=[AclDescription(**_fields(acl)) for acl in rows],
            )
            for (kind, name, prefixed), rows in groupby(sorted(found, key=_resource), _resource)
        ]
        return DescribeAclsResponse(resources=resources)

    @handles(CREATE_ACLS)
    def _create(self, request: Request, _: float) -> Message:
        refused = self._refused(request, "ALTER")
        if refused is not None:
            return refused
        results = []
        for row in request.message.creations:
            acl = _created(row)
            if acl is not None:
                self._cluster.acls.add(acl)
                results.append(AclCreationResult())
            elif ANY in (row.operation, row.resource_type, row.permission_type) or row.resource_pattern_type <= MATCH:
                results.append(AclCreationResult(error_code=Errors.UNKNOWN_SERVER_ERROR, error_message=None))
            else:
                results.append(AclCreationResult(error_code=Errors.INVALID_REQUEST, error_message="Invalid ACL."))
        return CreateAclsResponse(results=results)

    @handles(DELETE_ACLS)
    def _delete(self, request: Request, _: float) -> Message:
        refused = self._refused(request, "ALTER")
        if refused is not None:
            return refused
        results = []
        for row in request.message.filters:
            found = [acl for acl in self._cluster.acls.rows() if _matches(row, acl)]
            for acl in found:
                self._cluster.acls.remove(acl)
            results.append(DeleteAclsFilterResult(error_message=None, matching_acls=[_deleted(acl) for acl in found]))
        return DeleteAclsResponse(filter_results=results)


def _resource(acl: Acl) -> tuple[str, str, bool]:
    return acl.resource_type, acl.name, acl.prefixed


def _fields(acl: Acl) -> dict[str, Any]:
    """Returns the fields of an entry that are not those of its resource."""
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": NUMBERS[acl.operation],
        "permission_type": ALLOW if acl.allow else DENY,
    }


def _deleted(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=RESOURCE_TYPES[acl.resource_type],
        resource_name=acl.name,
        pattern_type=PREFIXED if acl.prefixed else LITERAL,
        **_fields(acl),
    )


def _created(row: AclCreation) -> Acl | None:
    """Returns the entry that a row of CreateAcls describes, or None if the row is not valid."""
    kind = next((name for name, number in RESOURCE_TYPES.items() if number == row.resource_type), "")
    operation = next((name for name, number in NUMBERS.items() if number == row.operation), "")
    valid = (
        kind
        and operation
        and row.resource_pattern_type in (LITERAL, PREFIXED)
        and row.permission_type in (DENY, ALLOW)
        and ":" in row.principal
        and row.resource_name
        and (kind != CLUSTER or row.resource_name == CLUSTER_NAME)
    )
    prefixed, allow = row.resource_pattern_type == PREFIXED, row.permission_type == ALLOW
    return Acl(row.principal, operation, kind, row.resource_name, prefixed, allow, row.host) if valid else None


def _matches(row: Any, acl: Acl) -> bool:
    """Returns whether the filter of DescribeAcls, or a filter of DeleteAcls, finds an entry."""
    return (
        row.resource_type_filter in (ANY, RESOURCE_TYPES[acl.resource_type])
        and _matches_name(row, acl)
        and row.principal_filter in (None, acl.principal)
        and row.host_filter in (None, acl.host)
        and row.operation in (ANY, NUMBERS[acl.operation])
        and row.permission_type in (ANY, ALLOW if acl.allow else DENY)
    )


def _matches_name(row: Any, acl: Acl) -> bool:
    name, pattern = row.resource_name_filter, row.pattern_type_filter
    if pattern == MATCH:
        covers = name is None or (name.startswith(acl.name) if acl.prefixed else acl.name in (name, ANY_NAME))
        return bool(covers)
    return name in (None, acl.name) and pattern in (ANY, PREFIXED if acl.prefixed else LITERAL)
