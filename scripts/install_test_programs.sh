#!/bin/sh
# Programs that tests use and no wheel brings, by the system's package manager: a browser for
# tests/browser, and kcat, a producer for Kafka that nobody here wrote. Where one cannot be had its
# tests are skipped, and say so.
export DEBIAN_FRONTEND=noninteractive

find_one_of() {
  for name in "$@"; do
    command -v "$name" && return 0
  done
  return 1
}

install() {
  command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ] || return 1
  [ -n "$updated" ] || apt-get update -qq || return 1
  updated=yes
  apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

find_one_of chromium chromium-browser google-chrome google-chrome-stable chrome ||
  install chromium fonts-dejavu-core ||
  echo "no browser is here and none could be installed: tests/browser will be skipped"
find_one_of kcat || install kcat ||
  echo "kcat is not here and could not be installed: the tests that send by it will be skipped"
