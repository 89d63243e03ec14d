"""Runs `bazel test` and counts test cases instead of binaries.

The last line is `N passed, N failed, N skipped`. A test that cannot run says so by a line
`SKIPPED: reason` in its log; where the shared test data lies beside the checkout nothing may be
skipped, and a skip then counts as a failure.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.parse
import xml.etree.ElementTree as ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BAZEL = "/usr/bin/bazel"
SKIPPED = re.compile(r"^SKIPPED: (.*)$", re.MULTILINE)


def has_shared_data():
    where = os.environ.get("ODB_CONFORMANCE_DIR") or os.path.join(ROOT, "..", "shared")
    return os.path.isdir(os.path.join(where, "conformance"))


def read_events(path):
    """Yields (label, status, paths of logs) of every test that Bazel reports."""
    results = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            if "testResult" in event:
                label = event["id"]["testResult"]["label"]
                files = {
                    output["name"]: urllib.parse.unquote(output.get("uri", "").replace("file://", "", 1))
                    for output in event["testResult"].get("testActionOutput", [])
                }
                results[label] = [event["testResult"].get("status", "NO_STATUS"), files]
            elif "testSummary" in event:
                label = event["id"]["testSummary"]["label"]
                results.setdefault(label, ["NO_STATUS", {}])
                results[label][0] = event["testSummary"].get("overallStatus", results[label][0])
    return results


def count_cases(path):
    """Returns (cases, failed cases) of a test.xml; one case where it has none."""
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError):
        return 1, 0
    cases = list(root.iter("testcase"))
    failed = [c for c in cases if c.find("failure") is not None or c.find("error") is not None]
    return max(len(cases), 1), len(failed)


def main():
    arguments = sys.argv[1:]
    if not any(a.startswith("//") for a in arguments):
        arguments.append("//...")
    with tempfile.TemporaryDirectory() as scratch:
        events = os.path.join(scratch, "events.json")
        command = [BAZEL, "test", "--keep_going", "--build_event_json_file=" + events, *arguments]
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        results = read_events(events) if os.path.exists(events) else {}

    passed = failed = skipped = 0
    for label, (status, files) in sorted(results.items()):
        cases, bad = count_cases(files.get("test.xml", ""))
        if status not in ("PASSED", "FLAKY"):
            bad = max(bad, 1)
            print("FAILED: %s (%s)" % (label, status.lower()))
        if status == "FLAKY":
            print("FLAKY: %s failed before it passed" % label)
        reasons = []
        if "test.log" in files:
            with open(files["test.log"], encoding="utf-8", errors="replace") as log:
                reasons = SKIPPED.findall(log.read())
        for reason in reasons:
            print("SKIPPED: %s: %s" % (label, reason))
        skips = min(len(reasons), cases - bad)
        skipped += skips
        failed += bad
        passed += cases - bad - skips
    if skipped and has_shared_data():
        print("FAILED: %d skipped although the shared test data is here" % skipped)
        failed += skipped
    if code not in (0, 3) or (code == 3 and failed == 0) or not results:
        print("FAILED: bazel test ended with code %d" % code)
        failed += 1
    print("%d passed, %d failed, %d skipped" % (passed, failed, skipped))
    return 1 if failed else 0


sys.exit(main())
