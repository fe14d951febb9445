"""The machine, built once."""

from __future__ import annotations

import pytest

from ortisan.emulator import Device, open_device


@pytest.fixture(scope="session")
def device() -> Device:
    return open_device()
