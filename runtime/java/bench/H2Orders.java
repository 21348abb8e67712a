// SPDX-License-Identifier: Apache-2.0
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Random;

/**
 * Benchmark with orders, payments and reports on an H2 database in memory, similar to TPC-C.
 * Argument: the number of warm-up rounds.
 */
public final class H2Orders {
    private static final int ITEMS = 1000;
    private static final int CUSTOMERS = 500;
    private static final int ORDERS_A_ROUND = 200;
    private static final int LINES_AN_ORDER = 8;

    private final Connection db;
    private final Random random = new Random(1);

    private H2Orders(Connection db) {
        this.db = db;
    }

    public static void main(String[] args) throws Exception {
        Timed.rounds(Integer.parseInt(args[0]), H2Orders::round);
    }

    /**
     * Runs one round. Every round has a database of its own, so that all rounds do the same work.
     */
    private static long round() throws SQLException {
        try (Connection db = DriverManager.getConnection("jdbc:h2:mem:orders")) {
            db.setAutoCommit(false);
            H2Orders orders = new H2Orders(db);
            orders.fill();
            long sum = orders.work();
            db.commit();
            return sum;
        }
    }

    private void fill() throws SQLException {
        try (Statement s = db.createStatement()) {
            s.execute("create table item(id int primary key, name varchar, price decimal(8,2), stock int)");
            s.execute("create table customer(id int primary key, name varchar, balance decimal(12,2))");
            s.execute("create table orders(id int primary key, customer int, total decimal(12,2))");
            s.execute("create table line(orders int, item int, amount int, primary key(orders, item))");
            s.execute("create index customers on customer(name)");
            s.execute("create index of_customer on orders(customer)");
        }
        for (int i = 0; i < ITEMS; i++) {
            update("insert into item values(?, ?, ?, ?)", i, "item " + random.nextInt(), 1 + i % 90, 100);
        }
        for (int i = 0; i < CUSTOMERS; i++) {
            update("insert into customer values(?, ?, ?)", i, "name " + i % 97, 0);
        }
    }

    private long work() throws SQLException {
        long sum = 0;
        for (int order = 0; order < ORDERS_A_ROUND; order++) {
            int customer = random.nextInt(CUSTOMERS);
            order(order, customer);
            sum += ask("select count(*) from orders where customer = ?", customer);
            if (order % 50 == 0) {
                sum += ask("select sum(l.amount) from line l join item i on l.item = i.id"
                        + " where i.price > ? group by i.name order by 1 desc limit 10", 40);
                sum += ask("select id from customer where name like ? order by balance desc, id", "name 1%");
            }
            if (order % 10 == 0) {
                db.commit();
            }
        }
        return sum;
    }

    private void order(int order, int customer) throws SQLException {
        long total = 0;
        update("insert into orders values(?, ?, 0)", order, customer);
        int first = random.nextInt(ITEMS);
        for (int i = 0; i < LINES_AN_ORDER; i++) {
            int item = (first + i * 131) % ITEMS;
            int amount = 1 + random.nextInt(5);
            update("insert into line values(?, ?, ?)", order, item, amount);
            update("update item set stock = stock - ? where id = ?", amount, item);
            total += amount * ask("select price from item where id = ?", item);
        }
        update("update orders set total = ? where id = ?", total, order);
        update("update customer set balance = balance - ? where id = ?", total, customer);
    }

    private void update(String sql, Object... arguments) throws SQLException {
        try (PreparedStatement s = prepared(sql, arguments)) {
            s.executeUpdate();
        }
    }

    /** Returns the sum of the first column of a query's result. */
    private long ask(String sql, Object... arguments) throws SQLException {
        long sum = 0;
        try (PreparedStatement s = prepared(sql, arguments); ResultSet rows = s.executeQuery()) {
            while (rows.next()) {
                sum += rows.getLong(1);
            }
        }
        return sum;
    }

    private PreparedStatement prepared(String sql, Object... arguments) throws SQLException {
        PreparedStatement s = db.prepareStatement(sql);
        for (int i = 0; i < arguments.length; i++) {
            s.setObject(i + 1, arguments[i]);
        }
        return s;
    }
}
