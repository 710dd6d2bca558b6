"""All scenarios: importing this module imports the modules that define them."""

from __future__ import annotations

from support.scenarios import admin as admin
from support.scenarios import classic_groups as classic_groups
from support.scenarios import commits as commits
from support.scenarios import consumer_groups as consumer_groups
from support.scenarios import fetch as fetch
from support.scenarios import metadata as metadata
from support.scenarios import migration as migration
from support.scenarios import offsets as offsets
from support.scenarios import permissions as permissions
from support.scenarios import produce as produce
from support.scenarios import sasl as sasl
from support.scenarios import share_groups as share_groups
from support.scenarios import share_records as share_records
from support.scenarios import topics as topics
from support.scenarios import transactions as transactions
from support.scenarios.scenario import ALL as ALL
