// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.lab.lucene;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/** List of random queries that a warm server answers in less than 2.5 ms. */
final class QueryList {
    private static final long LONGEST_NS = 2_500_000;
    private static final int WARM_UP = 3_000;
    private static final long SEED = 2;
    private static final String[] KINDS = {"and", "or", "phrase"};

    private QueryList() {}

    /** Returns {@code count} queries, each of which takes less than 2.5 ms in the fastest of three searches. */
    static List<String> of(Searches searches, int count) throws IOException {
        Random random = new Random(SEED);
        for (int number = 0; number < WARM_UP; number++) {
            searches.search(draw(random));
        }
        List<String> queries = new ArrayList<>();
        while (queries.size() < count) {
            String query = draw(random);
            if (fastestNs(searches, query) < LONGEST_NS) {
                queries.add(query);
            }
        }
        return queries;
    }

    private static String draw(Random random) {
        StringBuilder query = new StringBuilder(KINDS[random.nextInt(KINDS.length)]);
        int words = 2 + random.nextInt(2);
        for (int place = 0; place < words; place++) {
            query.append(' ').append(Documents.word(Documents.rank(random)));
        }
        return query.toString();
    }

    private static long fastestNs(Searches searches, String query) throws IOException {
        long fastestNs = Long.MAX_VALUE;
        for (int turn = 0; turn < 3; turn++) {
            long beganNs = System.nanoTime();
            searches.search(query);
            fastestNs = Math.min(fastestNs, System.nanoTime() - beganNs);
        }
        return fastestNs;
    }
}
