#!/bin/sh
# Install what the bed needs of the machine, if this is root on a Debian; say what
# is needed otherwise.  Quick when there is nothing to do.  All words go to stderr.
set -eu
exec >&2
PATH="$PATH:/usr/sbin:/sbin"

is_there() {
    case $1 in
    /*) test -e "$1" ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

known() {
    apt-cache show "$1" >/dev/null 2>&1
}

installed() {
    dpkg-query --show --showformat '${Package}\n'
}

# The packages for all that is missing.
wanted() {
    grep -v '^#' "${0%/*}/packages" | while read -r needed packages; do
        is_there "$needed" && continue
        for package in $packages; do
            known "$package" && break
        done
        echo "$package"
    done | sort -u
}

if [ -z "$(wanted)" ]; then
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "The tests with real parts need, by the names of Debian's packages:" $(wanted)
    exit 0
fi
if [ "$(id -u)" != 0 ]; then
    echo "The tests with real parts must be run by root, and need:"
    echo "  sudo apt-get install --no-install-recommends" $(wanted)
    exit 0
fi

# The bed has instances of its own: a service must neither start now nor at the next boot.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    trap 'rm -f $policy' EXIT
    trap 'exit 1' INT TERM HUP
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod 755 $policy
fi
apt-get -qq update
packages=$(wanted)
echo "installing" $packages
before=$(installed)
DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install $packages >/dev/null
if command -v systemctl >/dev/null; then
    for package in $(installed); do
        case " $(echo $before) " in *" $package "*) continue ;; esac
        for unit in $(dpkg -L "$package" | sed -n 's#.*/systemd/system/\([^/@]*\.\(service\|socket\)\)$#\1#p'); do
            case $unit in systemd* | dbus*) continue ;; esac
            systemctl --quiet disable "$unit" 2>/dev/null || true
        done
    done
fi
if [ -n "$(wanted)" ]; then
    echo "still missing after the installation:" $(wanted)
    exit 1
fi
