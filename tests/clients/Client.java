import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.api.async.RedisAsyncCommands;
import io.lettuce.core.api.sync.RedisCommands;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.HttpTimeoutException;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.exceptions.JedisConnectionException;

/**
 * Java's clients: Client LIBRARY ADDRESS PREFIX SECONDS. The last line of the output is a report as JSON; run.py says what
 * is in it.
 */
public final class Client {
    /** Longer than any hazard: what takes longer is lost. */
    static final Duration PATIENCE = Duration.ofSeconds(10);
    static final Duration HURRY = Duration.ofMillis(100);
    static final int LONG = 1 << 20;
    static final String SCRIPT = "return redis.call('INCR', KEYS[1])";

    static final List<String> failures = new ArrayList<>(), once = new ArrayList<>(), atMostOnce = new ArrayList<>();
    static final List<Double> milliseconds = new ArrayList<>();
    static int requests;
    static String host, prefix;
    static int port;
    static double seconds;

    interface Loop {
        void run(int number) throws Exception;
    }

    static synchronized void expect(String what, Object got, Object wanted) {
        requests++;
        if (!Objects.equals(got, wanted)) {
            failures.add(String.format("%s: %.200s, not %.100s", what, got, wanted));
        }
    }

    static synchronized String note(List<String> list, String name) {
        list.add(name);
        return name;
    }

    static <T> T timed(Callable<T> call) throws Exception {
        long start = System.nanoTime();
        T result = call.call();
        synchronized (Client.class) {
            milliseconds.add((System.nanoTime() - start) / 1e6);
        }
        return result;
    }

    /** The class of the error, or what was returned. */
    static Object outcome(Callable<?> call) {
        try {
            return call.call();
        } catch (Exception error) {
            return error.getClass();
        }
    }

    /** Runs each loop in a thread, with numbers that no other one gets, until the time is up. */
    static void work(Loop... loops) throws InterruptedException {
        long end = System.nanoTime() + (long) (seconds * TimeUnit.SECONDS.toNanos(1));
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < loops.length; i++) {
            int first = i;
            threads.add(new Thread(() -> {
                try {
                    for (int number = first; System.nanoTime() < end; number += loops.length) {
                        loops[first].run(number);
                    }
                } catch (Throwable error) {
                    expect("loop " + first, error + ", because of " + error.getCause(), "no error");
                }
            }));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
    }

    static List<String> items(int count) {
        return IntStream.range(0, count).mapToObj(i -> "item:" + i).toList();
    }

    static void lettuce() throws Exception {
        RedisClient client = RedisClient.create(RedisURI.builder().withHost(host).withPort(port).withTimeout(PATIENCE).build());
        // A client that sends a command again after a lost connection would hide the loss.
        client.setOptions(ClientOptions.builder().autoReconnect(false).build());
        RedisAsyncCommands<String, String> reader = client.connect().async();
        RedisCommands<String, String> writer = client.connect().sync();
        String script = writer.scriptLoad(SCRIPT);
        Loop read = number -> {
            String key = "item:" + number % 100;
            expect("GET", timed(() -> reader.get(key).get()), key);
            List<RedisFuture<String>> replies = items(10).stream().map(reader::get).toList();
            List<String> values = new ArrayList<>();
            for (RedisFuture<String> reply : replies) {
                values.add(reply.get());
            }
            expect("10 GET at once", values, items(10));
        };
        Loop write = number -> {
            String name = prefix + ":once:" + number;
            expect("INCR", writer.incr(name), 1L);
            expect("GET after INCR", writer.get(note(once, name)), "1");
            if (number % 10 == 1) {
                Long reply = writer.evalsha(script, ScriptOutputType.INTEGER, name + "s");
                expect("EVALSHA", reply, 1L);
                note(once, name + "s");
            }
            if (number % 10 == 2) {
                String value = "x".repeat(900_000);
                expect("SET of 900 kB", writer.set(prefix + ":long:" + number, value), "OK");
                expect("GET of 900 kB", writer.get(prefix + ":long:" + number).equals(value), true);
            }
            if (number % 10 == 4) {
                writer.getStatefulConnection().async().incr(note(atMostOnce, name + "c")).cancel(true);
            }
            if (number % 50 == 3) {
                try (var hasty = client.connect()) {
                    hasty.setTimeout(HURRY);
                    Object late = outcome(() -> hasty.sync().blpop(0, prefix + ":none"));
                    expect("BLPOP in 0.1 s", late, io.lettuce.core.RedisCommandTimeoutException.class);
                }
            }
        };
        work(read, read, write, write);
    }

    static void jedis() throws Exception {
        int patience = (int) PATIENCE.toMillis();
        var config = DefaultJedisClientConfig.builder().socketTimeoutMillis(patience).build();
        var hurried = DefaultJedisClientConfig.builder().socketTimeoutMillis(patience)
            .blockingSocketTimeoutMillis((int) HURRY.toMillis()).build();
        HostAndPort address = new HostAndPort(host, port);
        JedisPooled reader = new JedisPooled(address, config);
        JedisPooled hasty = new JedisPooled(address, hurried);
        // A client reads what it has written on the same connection, so each thread that writes has one alone.
        ConnectionPoolConfig one = new ConnectionPoolConfig();
        one.setMaxTotal(1);
        List<JedisPooled> writers = List.of(new JedisPooled(one, address, config), new JedisPooled(one, address, config));
        String script = reader.scriptLoad(SCRIPT);
        Loop read = number -> {
            String key = "item:" + number % 100;
            expect("GET", timed(() -> reader.get(key)), key);
            try (var pipeline = reader.pipelined()) {
                items(10).forEach(pipeline::get);
                expect("pipeline of GET", pipeline.syncAndReturnAll(), items(10));
            }
        };
        Loop write = number -> {
            JedisPooled client = writers.get(number % 2);
            String name = prefix + ":once:" + number;
            expect("INCR", client.incr(name), 1L);
            note(once, name);
            try (var pipeline = client.pipelined()) {
                pipeline.incr(name + "p");
                pipeline.rpush(prefix + ":list:" + number, "a");
                pipeline.get(name + "p");
                expect("pipeline of writes", pipeline.syncAndReturnAll(), List.of(1L, 1L, "1"));
                note(once, name + "p");
            }
            if (number % 10 == 0) {
                try (var transaction = client.multi()) {
                    transaction.incr(name + "t");
                    expect("EXEC", transaction.exec(), List.of(1L));
                    note(once, name + "t");
                }
            }
            if (number % 10 == 1) {
                expect("EVALSHA", client.evalsha(script, 1, name + "s"), 1L);
                note(once, name + "s");
            }
            if (number % 10 == 2) {
                String value = "x".repeat(900_000);
                expect("SET of 900 kB", client.set(prefix + ":long:" + number, value), "OK");
                expect("STRLEN of 900 kB", client.strlen(prefix + ":long:" + number), 900_000L);
            }
            if (number % 50 == 3) {
                Object late = outcome(() -> hasty.blpop(0, prefix + ":none"));
                expect("BLPOP in 0.1 s", late, JedisConnectionException.class);
            }
        };
        work(read, read, write, write);
    }

    static void httpClient() throws Exception {
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        Loop get = number -> {
            var request = request("/item/" + number, PATIENCE).GET().build();
            expect("GET", timed(() -> client.send(request, BodyHandlers.ofString()).body()), "item " + number);
            if (number % 5 == 0) {
                var chunks = request("/long/200000", PATIENCE).build();
                expect("GET in chunks", client.send(chunks, BodyHandlers.ofString()).body().length(), 200_000);
            }
        };
        Loop post = number -> {
            String name = prefix + ":" + number;
            String body = name.repeat(number % 5 == 2 ? LONG / name.length() : 1);
            String sum = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(body.getBytes()));
            // Each other upload waits for the server's word that it may begin.
            var request = request("/once/" + name, PATIENCE).POST(BodyPublishers.ofString(body));
            var response = client.send(request.expectContinue(number % 2 == 0).build(), BodyHandlers.ofString());
            expect("POST", response.statusCode() + " " + response.body(), "200 " + sum);
            note(once, name);
            if (number % 10 == 2) {
                var late = request("/slow/" + note(atMostOnce, name + "late"), HURRY);
                var slow = late.POST(BodyPublishers.ofString("x")).build();
                expect("POST in 0.1 s", outcome(() -> client.send(slow, BodyHandlers.ofString())), HttpTimeoutException.class);
            }
            if (number % 10 == 3) {
                var cancelled = request("/slow/" + note(atMostOnce, name + "cancelled"), PATIENCE);
                var future = client.sendAsync(cancelled.POST(BodyPublishers.ofString("x")).build(), BodyHandlers.ofString());
                Thread.sleep(20);
                expect("cancelled POST", future.cancel(true), true);
            }
        };
        work(get, get, post, post);
    }

    static HttpRequest.Builder request(String path, Duration within) {
        return HttpRequest.newBuilder(URI.create("http://" + host + ":" + port + path)).timeout(within);
    }

    static String strings(List<String> list) {
        return list.stream().map(text -> '"' + text.replaceAll("[\"\\\\\\p{Cntrl}]", "?") + '"').collect(Collectors.joining(",", "[", "]"));
    }

    public static void main(String[] arguments) throws Exception {
        String[] address = arguments[1].split(":");
        host = address[0];
        port = Integer.parseInt(address[1]);
        prefix = arguments[2];
        seconds = Double.parseDouble(arguments[3]);
        switch (arguments[0]) {
            case "lettuce" -> lettuce();
            case "jedis" -> jedis();
            case "HttpClient" -> httpClient();
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        System.out.printf("{\"requests\": %d, \"failures\": %s, \"once\": %s, \"at_most_once\": %s, \"milliseconds\": %s}%n",
            requests, strings(failures), strings(once), strings(atMostOnce), milliseconds);
        System.exit(0);
    }
}
