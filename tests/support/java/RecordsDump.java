// Writes record batches and reads them with Kafka's own code, one line in, one line out, for
// tests/integration/test_java_records.py:
//
//   write MAGIC CODEC TIMESTAMP_TYPE BASE_OFFSET LOG_APPEND_TIME PRODUCER_ID TRANSACTIONAL EPOCH RECORD...
//                                       a batch (magic 2), message set (0, 1) or wrapper, in hex
//   marker OFFSET PRODUCER_ID TYPE      the end of a transaction, ABORT or COMMIT, in hex
//   read LEVEL CRCS OFFSET ABORTED HEX  what a consumer's fetch of these bytes gives: position, leader epoch, error (none
//                                       if there is none), records
//
// A record is OFFSET,TIMESTAMP,KEY,VALUE,HEADERS; to those that were read TYPE and EPOCH are added in front. Keys and
// values are hex after an x, or - for null; headers are NAME=VALUE joined by semicolons, the name in hex. ABORTED is
// PRODUCER_ID:FIRST_OFFSET joined by commas, or -. Responses start with "ok", or with "error" and the reason.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.StringJoiner;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.internals.AutoOffsetResetStrategy;
import org.apache.kafka.clients.consumer.internals.CompletedFetch;
import org.apache.kafka.clients.consumer.internals.Deserializers;
import org.apache.kafka.clients.consumer.internals.FetchConfig;
import org.apache.kafka.clients.consumer.internals.FetchMetricsManager;
import org.apache.kafka.clients.consumer.internals.FetchMetricsRegistry;
import org.apache.kafka.clients.consumer.internals.SubscriptionState;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.common.utils.internals.LogContext;
import org.slf4j.LoggerFactory;

public class RecordsDump {
    private static final HexFormat HEX = HexFormat.of();
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);
    private static final Metrics METRICS = new Metrics();
    private static final FetchMetricsManager FETCH_METRICS =
        new FetchMetricsManager(METRICS, new FetchMetricsRegistry());
    private static final Deserializers<byte[], byte[]> DESERIALIZERS =
        new Deserializers<>(new ByteArrayDeserializer(), new ByteArrayDeserializer(), METRICS);

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                out.println("ok " + respond(line.split(" ", -1)));
            } catch (Exception e) {
                out.println("error " + e.toString().replace('\n', ' '));
            }
        }
    }

    private static String respond(String[] words) throws Exception {
        switch (words[0]) {
            case "write":
                return write(words);
            case "marker":
                return marker(Long.parseLong(words[1]), Long.parseLong(words[2]), words[3]);
            case "read":
                return read(words);
            default:
                throw new IllegalArgumentException("unknown word " + words[0]);
        }
    }

    // Writing

    private static String write(String[] words) {
        byte magic = Byte.parseByte(words[1]);
        Compression compression = Compression.of(CompressionType.forName(words[2])).build();
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 16), magic, compression,
            TimestampType.forName(words[3]), Long.parseLong(words[4]), Long.parseLong(words[5]),
            Long.parseLong(words[6]), (short) 0, Long.parseLong(words[6]) < 0 ? -1 : 0, Boolean.parseBoolean(words[7]),
            Integer.parseInt(words[8]));
        for (int i = 9; i < words.length; i++) {
            String[] parts = words[i].split(",", -1);
            builder.appendWithOffset(Long.parseLong(parts[0]), Long.parseLong(parts[1]), bytes(parts[2]),
                bytes(parts[3]), headers(parts[4]));
        }
        return hex(builder.build().buffer());
    }

    private static String marker(long offset, long producerId, String type) {
        EndTransactionMarker marker = new EndTransactionMarker(ControlRecordType.valueOf(type), 0);
        return hex(MemoryRecords.withEndTransactionMarker(offset, 7L, 3, producerId, (short) 0, marker).buffer());
    }

    private static byte[] bytes(String text) {
        return text.equals("-") ? null : HEX.parseHex(text.substring(1));
    }

    private static Header[] headers(String text) {
        if (text.isEmpty())
            return new Header[0];
        String[] parts = text.split(";");
        Header[] headers = new Header[parts.length];
        for (int i = 0; i < parts.length; i++) {
            String[] pair = parts[i].split("=", -1);
            String name = new String(HEX.parseHex(pair[0]), StandardCharsets.UTF_8);
            headers[i] = new RecordHeader(name, bytes(pair[1]));
        }
        return headers;
    }

    private static String hex(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return HEX.formatHex(bytes);
    }

    // Reading, through the class in which the Java consumer keeps one partition's part of a fetch

    private static String read(String[] words) throws Exception {
        FetchConfig config = new FetchConfig(1, 1 << 20, 500, 1 << 20, 500, Boolean.parseBoolean(words[2]), "",
            IsolationLevel.valueOf(words[1]));
        CompletedFetch fetch = completedFetch(data(words[4], HEX.parseHex(words[5])), Long.parseLong(words[3]));
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        String error = "none";
        try {
            while (!fetch.isConsumed() && !(Boolean) call(fetch, "isExhausted"))
                records.addAll(fetchRecords(fetch, config));
        } catch (InvocationTargetException e) {
            Throwable cause = e.getCause();
            error = (cause.getCause() == null ? cause : cause.getCause()).getClass().getSimpleName();
        }
        StringJoiner all = new StringJoiner(" ");
        all.add(call(fetch, "nextFetchOffset").toString());
        all.add(((Optional<?>) call(fetch, "lastEpoch")).map(Object::toString).orElse("none"));
        all.add(error);
        for (ConsumerRecord<byte[], byte[]> record : records)
            all.add(text(record));
        return all.toString();
    }

    private static FetchResponseData.PartitionData data(String aborted, byte[] bytes) {
        List<FetchResponseData.AbortedTransaction> transactions = new ArrayList<>();
        if (!aborted.equals("-"))
            for (String pair : aborted.split(","))
                transactions.add(new FetchResponseData.AbortedTransaction()
                    .setProducerId(Long.parseLong(pair.split(":")[0]))
                    .setFirstOffset(Long.parseLong(pair.split(":")[1])));
        return new FetchResponseData.PartitionData()
            .setAbortedTransactions(transactions)
            .setRecords(MemoryRecords.readableRecords(ByteBuffer.wrap(bytes)));
    }

    private static CompletedFetch completedFetch(FetchResponseData.PartitionData data, long offset) throws Exception {
        SubscriptionState subscriptions = new SubscriptionState(new LogContext(), AutoOffsetResetStrategy.EARLIEST);
        Class<?> aggregator = Class.forName("org.apache.kafka.clients.consumer.internals.FetchMetricsAggregator");
        Object metrics = make(aggregator, FETCH_METRICS, Set.of(PARTITION));
        return (CompletedFetch) make(CompletedFetch.class, LoggerFactory.getLogger("fetch"), subscriptions,
            BufferSupplier.create(), PARTITION, data, metrics, offset);
    }

    @SuppressWarnings("unchecked")
    private static List<ConsumerRecord<byte[], byte[]>> fetchRecords(CompletedFetch fetch, FetchConfig config)
            throws Exception {
        return (List<ConsumerRecord<byte[], byte[]>>) call(fetch, "fetchRecords", config, DESERIALIZERS, 3);
    }

    // Constructors and methods that are not public; each name has one of that many parameters.

    private static Object make(Class<?> type, Object... arguments) throws Exception {
        for (Constructor<?> constructor : type.getDeclaredConstructors())
            if (constructor.getParameterCount() == arguments.length) {
                constructor.setAccessible(true);
                return constructor.newInstance(arguments);
            }
        throw new NoSuchMethodException(type.getName());
    }

    private static Object call(Object object, String name, Object... arguments) throws Exception {
        for (Method method : object.getClass().getDeclaredMethods())
            if (method.getName().equals(name) && method.getParameterCount() == arguments.length) {
                method.setAccessible(true);
                return method.invoke(object, arguments);
            }
        throw new NoSuchMethodException(name);
    }

    private static String text(ConsumerRecord<byte[], byte[]> record) {
        StringJoiner headers = new StringJoiner(";");
        for (Header header : record.headers())
            headers.add(HEX.formatHex(header.key().getBytes(StandardCharsets.UTF_8)) + "=" + text(header.value()));
        String epoch = record.leaderEpoch().map(Object::toString).orElse("none");
        return String.join(",", "" + record.timestampType().id, epoch, "" + record.offset(), "" + record.timestamp(),
            text(record.key()), text(record.value()), headers.toString());
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "-" : "x" + HEX.formatHex(bytes);
    }
}
