// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.lab.lucene;

import java.io.IOException;
import java.nio.file.Path;

/**
 * A search server as in Tailor's evaluation (thesis "SHIM and Its Applications", section 4.3): one coordinator that
 * reads requests and hands them to workers, which search and answer.
 *
 * <pre>
 * lucene-server index DIR                            build the index
 * lucene-server queries DIR COUNT                    print queries that take less than 2.5 ms
 * lucene-server serve DIR WORKERS NODELAY LIVE RENEWED PORT
 *                                                    serve on a port of 127.0.0.1, 0 for a free one; NODELAY is nagle
 *                                                    or nodelay, LIVE the size of additional live objects, in MiB,
 *                                                    RENEWED the number of them that each search replaces
 * </pre>
 */
public final class Main {
    private Main() {}

    public static void main(String[] words) throws Exception {
        String verb = words.length > 1 ? words[0] : "";
        switch (verb) {
            case "index" -> Documents.write(Path.of(words[1]));
            case "queries" -> printQueries(Path.of(words[1]), Integer.parseInt(words[2]));
            case "serve" -> serve(words);
            default -> {
                System.err.println("usage: index DIR | queries DIR COUNT | serve DIR WORKERS nagle|nodelay LIVE RENEWED PORT");
                System.exit(2);
            }
        }
    }

    private static void printQueries(Path index, int count) throws IOException {
        try (Searches searches = new Searches(index)) {
            QueryList.of(searches, count).forEach(System.out::println);
        }
    }

    private static void serve(String[] words) throws IOException {
        Searches searches = new Searches(Path.of(words[1]));
        int workers = Integer.parseInt(words[2]);
        boolean nodelay = words[3].equals("nodelay");
        Live live = new Live(Integer.parseInt(words[4]), Integer.parseInt(words[5]));
        Coordinator coordinator = new Coordinator(Integer.parseInt(words[6]), nodelay);
        for (int number = 0; number < workers; number++) {
            Thread worker = new Thread(new Worker(coordinator, searches, live), "worker-" + number);
            worker.setDaemon(true);
            worker.start();
        }
        System.out.println("ready port=" + coordinator.port() + " pid=" + ProcessHandle.current().pid()
                + " live=" + live.count());
        Thread.currentThread().setName("coordinator");
        coordinator.run();
    }
}
