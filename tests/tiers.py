"""The tier of the namespaces that fixtures start: PAIRBUS_TEST_TIER, by default unlimited."""

import os

from pairbus.emulator.tiers import tier_of

TEST_TIER = tier_of(os.environ.get("PAIRBUS_TEST_TIER", "unlimited"))
