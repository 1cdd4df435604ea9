// Asks a server through pgjdbc, as Metabase does. First argument: the address. Questions come on standard
// input, one a line. Each row is printed with tabs between its values, and "--" after the last.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.Date;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;

public class Asks {
    public static void main(String[] words) throws Exception {
        try (Connection connection = DriverManager.getConnection(words[0])) {
            BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
            for (String sql; (sql = questions.readLine()) != null; ) {
                try (Statement statement = connection.createStatement()) {
                    print(statement.executeQuery(sql));
                }
            }
            printPrepared(connection);
            printBitByBit(connection);
            printMetadata(connection.getMetaData());
        }
    }

    // Five times, so that the driver changes to a prepared statement and to binary values.
    static void printPrepared(Connection connection) throws SQLException {
        String sql = "SELECT count(*), sum(fare) FROM trips WHERE zone = ? AND driver LIKE ? AND day > ? AND fare < ?";
        try (PreparedStatement prepared = connection.prepareStatement(sql)) {
            prepared.setInt(1, 2);
            prepared.setString(2, "%1%");
            prepared.setDate(3, Date.valueOf("2024-02-03"));
            prepared.setBigDecimal(4, new BigDecimal("5.5"));
            for (int i = 0; i < 6; i++) {
                prepared.executeQuery();
            }
            print(prepared.executeQuery());
        }
    }

    static void printBitByBit(Connection connection) throws SQLException {
        connection.setAutoCommit(false);
        connection.setReadOnly(true);
        try (Statement statement = connection.createStatement()) {
            statement.setFetchSize(500);
            ResultSet rows = statement.executeQuery("SELECT id FROM trips WHERE id < 2500");
            int count = 0;
            while (rows.next()) {
                count++;
            }
            System.out.println(count + "\n--");
        }
        connection.commit();
        connection.setReadOnly(false);
        connection.setAutoCommit(true);
    }

    static void printMetadata(DatabaseMetaData metadata) throws SQLException {
        print(metadata.getTables(null, "public", "%", new String[] {"TABLE", "VIEW", "MATERIALIZED VIEW"}), 3);
        print(metadata.getColumns(null, "public", "trips", "%"), 4, 6);
        print(metadata.getSchemas(), 1);
        print(metadata.getPrimaryKeys(null, "public", "trips"), 4);
        print(metadata.getImportedKeys(null, "public", "trips"), 4);
        print(metadata.getIndexInfo(null, "public", "trips", false, false), 6);
        metadata.getTypeInfo();
        metadata.getTablePrivileges(null, "public", "trips");
        metadata.getBestRowIdentifier(null, "public", "trips", 0, true);
        System.out.println(metadata.getDatabaseProductName() + "\t" + (metadata.getSQLKeywords().length() > 0));
    }

    static void print(ResultSet rows, int... columns) throws SQLException {
        int width = columns.length > 0 ? columns.length : rows.getMetaData().getColumnCount();
        while (rows.next()) {
            StringBuilder line = new StringBuilder();
            for (int i = 0; i < width; i++) {
                String value = rows.getString(columns.length > 0 ? columns[i] : i + 1);
                line.append(i == 0 ? "" : "\t").append(value == null ? "" : value);
            }
            System.out.println(line);
        }
        System.out.println("--");
    }
}
