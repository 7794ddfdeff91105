"""A tenth of the campaign."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

CAMPAIGN = Path(__file__).with_name("campaign.py")


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="forks, and reads /proc")
def test_a_tenth_of_the_campaign_has_no_failure():
    done = subprocess.run([sys.executable, CAMPAIGN, "--share", "0.1"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    total = re.search(r"^all +(\d+) ", done.stdout, re.MULTILINE)
    assert total is not None
    assert int(total[1]) > 1000
