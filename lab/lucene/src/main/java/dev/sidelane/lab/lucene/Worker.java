// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.lab.lucene;

import java.io.IOException;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;

/** Worker that answers requests: {@code GET /search?q=and+w1+w2}, {@code GET /gc}, {@code GET /classes?count=100}. */
final class Worker implements Runnable {
    private final Coordinator coordinator;
    private final Searches searches;
    private final Live live;

    Worker(Coordinator coordinator, Searches searches, Live live) {
        this.coordinator = coordinator;
        this.searches = searches;
        this.live = live;
    }

    @Override
    public void run() {
        while (true) {
            try {
                serve(coordinator.take());
            } catch (InterruptedException end) {
                return;
            }
        }
    }

    private void serve(Client client) {
        try {
            for (String head = client.next(); head != null; head = client.next()) {
                answer(client, target(head));
            }
        } catch (IOException gone) {
            client.close();
        }
    }

    private static String target(String head) {
        String[] words = head.split(" ", 3);
        return words.length == 3 && words[0].equals("GET") ? words[1] : "";
    }

    private void answer(Client client, String target) throws IOException {
        if (target.startsWith("/search?q=")) {
            live.renewSome();
            String found = searches.search(URLDecoder.decode(target.substring(10), StandardCharsets.UTF_8));
            client.answer(found == null ? "400 Bad Request" : "200 OK", found == null ? "{}" : found);
        } else if (target.equals("/gc")) {
            System.gc();
            client.answer("200 OK", "{}");
        } else if (target.startsWith("/classes?count=")) {
            client.answer("200 OK", "{\"loaded\":" + Classes.load(Integer.parseInt(target.substring(15))) + "}");
        } else {
            client.answer("404 Not Found", "{}");
        }
    }
}
