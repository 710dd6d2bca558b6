"""The APIs by which an administrator reads, creates and deletes access control lists. `kconsumer.testing` serves them.

Types, operations and permissions are numbers. The pattern of a resource is literal (3) or a prefix (4).
"""

from __future__ import annotations

from kconsumer.schema.dsl import INT8, INT16, INT32, STRING, Api, F, Message, array

LITERAL = 3  # the pattern type of a resource that is named exactly


class DescribeAclsRequest(Message):
    resource_type_filter: int = F(INT8)
    resource_name_filter: str | None = F(STRING, null="0+")
    pattern_type_filter: int = F(INT8, "1+", default=LITERAL)
    principal_filter: str | None = F(STRING, null="0+")
    host_filter: str | None = F(STRING, null="0+")
    operation: int = F(INT8)
    permission_type: int = F(INT8)


class AclDescription(Message):
    principal: str = F(STRING)
    host: str = F(STRING)
    operation: int = F(INT8)
    permission_type: int = F(INT8)


class DescribeAclsResource(Message):
    resource_type: int = F(INT8)
    resource_name: str = F(STRING)
    pattern_type: int = F(INT8, "1+", default=LITERAL)
    acls: list[AclDescription] = F(array(AclDescription))


class DescribeAclsResponse(Message):
    throttle_time_ms: int = F(INT32)
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, null="0+")
    resources: list[DescribeAclsResource] = F(array(DescribeAclsResource))


DESCRIBE_ACLS = Api(DescribeAclsRequest, DescribeAclsResponse, key=29, versions="1-3", flexible=2, throttle=1)


class AclCreation(Message):
    resource_type: int = F(INT8)
    resource_name: str = F(STRING)
    resource_pattern_type: int = F(INT8, "1+", default=LITERAL)
    principal: str = F(STRING)
    host: str = F(STRING)
    operation: int = F(INT8)
    permission_type: int = F(INT8)


class CreateAclsRequest(Message):
    creations: list[AclCreation] = F(array(AclCreation))


class AclCreationResult(Message):
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, null="0+")


class CreateAclsResponse(Message):
    throttle_time_ms: int = F(INT32)
    results: list[AclCreationResult] = F(array(AclCreationResult))


CREATE_ACLS = Api(CreateAclsRequest, CreateAclsResponse, key=30, versions="1-3", flexible=2, throttle=1)


class DeleteAclsFilter(Message):
    resource_type_filter: int = F(INT8)
    resource_name_filter: str | None = F(STRING, null="0+")
    pattern_type_filter: int = F(INT8, "1+", default=LITERAL)
    principal_filter: str | None = F(STRING, null="0+")
    host_filter: str | None = F(STRING, null="0+")
    operation: int = F(INT8)
    permission_type: int = F(INT8)


class DeleteAclsRequest(Message):
    filters: list[DeleteAclsFilter] = F(array(DeleteAclsFilter))


class DeleteAclsMatchingAcl(Message):
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, null="0+")
    resource_type: int = F(INT8)
    resource_name: str = F(STRING)
    pattern_type: int = F(INT8, "1+", default=LITERAL)
    principal: str = F(STRING)
    host: str = F(STRING)
    operation: int = F(INT8)
    permission_type: int = F(INT8)


class DeleteAclsFilterResult(Message):
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, null="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = F(array(DeleteAclsMatchingAcl))


class DeleteAclsResponse(Message):
    throttle_time_ms: int = F(INT32)
    filter_results: list[DeleteAclsFilterResult] = F(array(DeleteAclsFilterResult))


DELETE_ACLS = Api(DeleteAclsRequest, DeleteAclsResponse, key=31, versions="1-3", flexible=2, throttle=1)
