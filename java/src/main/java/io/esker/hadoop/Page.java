package io.esker.hadoop;

import java.util.List;

/** Part of a listing, in order of keys: objects, and what keys have in common up to a delimiter. */
record Page(List<Entry> objects, List<String> prefixes, String next) {

  /** Whether more follows, behind {@code next}. */
  boolean hasMore() {
    return next != null;
  }
}
