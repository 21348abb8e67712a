// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.lab.lucene;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;

/** Client connection, with the received bytes of an incomplete request and the queue of complete requests. */
final class Client {
    private static final int HEAD_BYTES_MAX = 16 * 1024;

    private final SocketChannel channel;
    private final ByteBuffer received = ByteBuffer.allocate(HEAD_BYTES_MAX);
    private final ArrayDeque<String> waiting = new ArrayDeque<>();
    private boolean taken;

    Client(SocketChannel channel) {
        this.channel = channel;
    }

    /** Reads the available bytes. Returns false if the connection has ended or its buffer is full. */
    boolean read() throws IOException {
        return channel.read(received) >= 0 && received.hasRemaining();
    }

    /** Moves complete requests to the queue. Returns whether this client must be passed to a worker. */
    synchronized boolean takeRequests() {
        String text = new String(received.array(), 0, received.position(), StandardCharsets.ISO_8859_1);
        int from = 0;
        for (int end = text.indexOf("\r\n\r\n"); end >= 0; end = text.indexOf("\r\n\r\n", from)) {
            waiting.add(text.substring(from, end));
            from = end + 4;
        }
        received.flip().position(from);
        received.compact();
        boolean tell = !taken && !waiting.isEmpty();
        taken |= tell;
        return tell;
    }

    /** Returns the next request; null if the queue is empty, and then another worker may serve this client. */
    synchronized String next() {
        String head = waiting.poll();
        taken = head != null;
        return head;
    }

    /** Sends a response. Head and body go out in two writes, as in many servers. */
    void answer(String status, String body) throws IOException {
        byte[] bytes = body.getBytes(StandardCharsets.UTF_8);
        write(("HTTP/1.1 " + status + "\r\nContent-Length: " + bytes.length + "\r\n\r\n")
                .getBytes(StandardCharsets.ISO_8859_1));
        write(bytes);
    }

    private void write(byte[] bytes) throws IOException {
        ByteBuffer left = ByteBuffer.wrap(bytes);
        while (left.hasRemaining()) {
            channel.write(left);
        }
    }

    void close() {
        try {
            channel.close();
        } catch (IOException gone) {
            // Ignores the error: the channel is closed anyway.
        }
    }
}
