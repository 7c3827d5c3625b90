#!/bin/sh
# A browser for tests/browser, by the system's package manager. Where none can be had the tests are
# skipped, and say so.
for name in chromium chromium-browser google-chrome google-chrome-stable chrome; do
  if command -v "$name" >/dev/null 2>&1; then
    echo "browser: $(command -v "$name")"
    exit 0
  fi
done
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null && exit 0
fi
echo "browser: none here and none could be installed; tests/browser will be skipped"
