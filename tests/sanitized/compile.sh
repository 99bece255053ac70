#!/bin/sh
# g++ with a sanitizer; the name that this file is called by says which: a link to it each.
case "$0" in
  *address*) exec g++ -fsanitize=address,undefined -fno-sanitize=vptr -fno-omit-frame-pointer -g "$@" ;;
  *thread*) exec g++ -fsanitize=thread -fno-omit-frame-pointer -g "$@" ;;
esac
