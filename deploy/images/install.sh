#!/bin/sh
# Installs the packages of a lock file, or those of this directory (`.`), into /opt/venv, and compiles them.
set -eu
[ -d /opt/venv ] || python3 -m venv /opt/venv
pip="/opt/venv/bin/pip --no-input install --disable-pip-version-check --no-deps --no-compile --progress-bar off"
if [ "$1" = . ]; then
    $pip --no-index --no-build-isolation .
    /opt/venv/bin/pip --no-input uninstall --yes --quiet setuptools pip
else
    # PySpark is a source distribution: its build tool comes first, in the locked version
    awk '/^setuptools==/ {found = 1; print; next} found && /^    / {print; next} {found = 0}' requirements.lock \
        > /tmp/build-tools.lock
    $pip --require-hashes -r /tmp/build-tools.lock
    $pip --require-hashes --no-build-isolation -r "$1"
fi
find /opt/venv -type d \( -name tests -o -name include \) -prune -exec rm -rf {} +
# the files' times do not survive in an image's layers
python3 -m compileall -qq -j 0 --invalidation-mode unchecked-hash /opt/venv/lib || true
