#!/bin/sh
# Make the virtual environment of the checkout: venv.sh PYTHON FOLDER.  All words go to stderr.
set -eu
exec >&2
python=$1 folder=$2

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "stopgap needs Python 3.11 or newer: make PYTHON=/path/to/python3 ..."
    exit 1
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "$python has no venv module (Debian: apt-get install python3-venv)"
        exit 1
    fi
    DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install python3-venv \
        >/dev/null
fi
echo "installing Python libraries into $folder"
"$python" -m venv "$folder"
"$folder/bin/python" -m pip -qq --disable-pip-version-check install --editable '.[dev]'
