#!/bin/sh
# A shell, its children and the pipes between them: family.sh STEPS SECONDS FILE.
steps=$1 seconds=$2 file=$3

count() {
    number=0
    while [ "$number" -lt "$steps" ]; do
        echo "$number"
        number=$((number + 1))
        sleep "$seconds"
    done
}

count | while read -r number; do
    echo "$number $(echo "$number" | md5sum)"
done | tee -a "$file" | while read -r number digest; do
    echo "child $number: $digest"
done
md5sum <"$file"
