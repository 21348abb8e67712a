// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.lab.lucene;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.concurrent.LinkedBlockingQueue;

/** Reads requests from all connections and queues them for the workers. */
final class Coordinator implements Runnable {
    private final boolean nodelay;
    private final ServerSocketChannel door;
    private final Selector selector = Selector.open();
    private final LinkedBlockingQueue<Client> queue = new LinkedBlockingQueue<>();

    Coordinator(int port, boolean nodelay) throws IOException {
        this.nodelay = nodelay;
        door = ServerSocketChannel.open().bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), 512);
        door.configureBlocking(false);
        door.register(selector, SelectionKey.OP_ACCEPT);
    }

    int port() throws IOException {
        return ((InetSocketAddress) door.getLocalAddress()).getPort();
    }

    /** Waits for a client with complete requests, and returns it. */
    Client take() throws InterruptedException {
        return queue.take();
    }

    @Override
    public void run() {
        while (true) {
            try {
                selector.select(this::ready);
            } catch (IOException broken) {
                throw new IllegalStateException("the selector broke", broken);
            }
        }
    }

    private void ready(SelectionKey key) {
        Client client = (Client) key.attachment();
        try {
            if (client == null) {
                accept();
            } else if (!client.read()) {
                client.close();
            } else if (client.takeRequests()) {
                queue.add(client);
            }
        } catch (IOException gone) {
            if (client != null) {
                client.close();
            }
        }
    }

    private void accept() throws IOException {
        SocketChannel channel = door.accept();
        if (channel != null) {
            channel.setOption(StandardSocketOptions.TCP_NODELAY, nodelay);
            channel.configureBlocking(false);
            channel.register(selector, SelectionKey.OP_READ, new Client(channel));
        }
    }
}
