"""Removing a member from outside, as Kafka's admin client does."""

from __future__ import annotations

import socket

from kconsumer._core.codec import decode_response, encode_request
from kconsumer.schema.classic_group import LEAVE_GROUP, LeaveGroupRequest, MemberIdentity
from support.brokers.kafka import Kafka


def remove_static_member(kafka: Kafka, group: str, instance: str) -> None:
    """Remove a static member from the group: send LeaveGroup with its instance id."""
    leave = LeaveGroupRequest(group_id=group, members=[MemberIdentity(group_instance_id=instance)])
    host, _, port = kafka.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as connection, connection.makefile("rb") as responses:
        connection.sendall(encode_request(LEAVE_GROUP, 3, 1, "admin", leave))
        _, response = decode_response(LEAVE_GROUP, 3, responses.read(int.from_bytes(responses.read(4), "big")))
    assert [0] == [response.error_code] == [member.error_code for member in response.members]
