#!/bin/sh
# Stands in for cargo: prints metadata.json, and compiles program.rs to one place for every spec, as cargo does.
here=$(dirname "$0")
case $1 in
metadata) cat "$here/metadata.json" ;;
build)
    for name; do :; done # the last argument
    NAME=$name ARGUMENTS=$* rustc "$here/program.rs" -o "$here/target/release/$name" || exit 101
    # The sources of a program with a model, which include the spec.
    echo "$here/target/release/$name: $(echo "$ZERO_SPEC" | sed 's/ /\\ /g')" >"$here/target/release/$name.d"
    echo "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"a library\"},\"executable\":null}"
    echo "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"$name\"},\"executable\":\"$here/target/release/$name\"}"
    echo "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"a tool\"},\"executable\":\"/bin/true\"}"
    ;;
esac
