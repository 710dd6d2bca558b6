import java.io.BufferedReader;
import java.io.EOFException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZoneOffset;
import java.util.HexFormat;
import java.util.Map;
import java.util.StringJoiner;
import java.util.TreeMap;
import org.apache.avro.Conversions;
import org.apache.avro.Schema;
import org.apache.avro.data.TimeConversions;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericFixed;
import org.apache.avro.generic.IndexedRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;

/** Reads lines with a writer's schema, a reader's schema and values in hex, separated by tabs. Prints what each value is
 * for Avro's GenericDatumReader, in the form of avro_cases.py, separated by tabs. An error is an exclamation mark, and a
 * question mark what Java refuses by mistake. */
public class AvroOracle {
    static final HexFormat HEX = HexFormat.of();
    static final long FIRST = LocalDate.of(1, 1, 1).toEpochDay(), LAST = LocalDate.of(9999, 12, 31).toEpochDay();
    static final GenericData DATA = new GenericData();

    public static void main(String[] arguments) throws Exception {
        DATA.addLogicalTypeConversion(new Conversions.DecimalConversion());
        DATA.addLogicalTypeConversion(new Conversions.UUIDConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.DateConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.TimeMillisConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.TimeMicrosConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.TimestampMillisConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.TimestampMicrosConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.LocalTimestampMillisConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.LocalTimestampMicrosConversion());
        DATA.setFastReaderEnabled(false);  // the other one converts logical types twice if only the writer has a union
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1); // also empty values
            StringJoiner results = new StringJoiner("\t");
            for (int at = 2; at < words.length; at++) {
                results.add(read(words[0], words[1], HEX.parseHex(words[at])));
            }
            out.println(results);
        }
        out.flush();
    }

    static String read(String writer, String reader, byte[] data) {
        try {
            Schema written = new Schema.Parser().parse(writer), wanted = new Schema.Parser().parse(reader);
            BinaryDecoder decoder = DecoderFactory.get().binaryDecoder(data, null);
            Object found = new GenericDatumReader<Object>(written, wanted, DATA).read(null, decoder);
            return decoder.isEnd() ? shown(found) : "!bytes are left";
        } catch (EOFException error) {
            return "?"; // damaged, or whole, but Java compares their size with that of the reader's schema
        } catch (StackOverflowError | OutOfMemoryError error) {
            return "!";
        } catch (Exception error) {
            // Java cannot check the default of a field whose type is the record around it.
            return "Schema fields not set yet".equals(error.getMessage()) ? "?" : "!";
        }
    }

    static String shown(Object given) throws Exception {
        if (given == null || given instanceof Boolean || given instanceof Integer || given instanceof Long) {
            return String.valueOf(given);
        }
        if (given instanceof Number && !(given instanceof BigDecimal)) {
            return "d" + Double.doubleToLongBits(((Number) given).doubleValue());
        }
        if (given instanceof BigDecimal) {
            return "N" + ((BigDecimal) given).unscaledValue() + "e" + ((BigDecimal) given).scale();
        }
        if (given instanceof ByteBuffer) {
            byte[] bytes = new byte[((ByteBuffer) given).remaining()];
            ((ByteBuffer) given).duplicate().get(bytes);
            return "b" + HEX.formatHex(bytes);
        }
        if (given instanceof GenericFixed) {
            return "b" + HEX.formatHex(((GenericFixed) given).bytes());
        }
        if (given instanceof LocalDate) {
            return "D" + checked(((LocalDate) given).toEpochDay());
        }
        if (given instanceof LocalTime) {
            return "T" + ((LocalTime) given).toNanoOfDay() / 1000;
        }
        if (given instanceof Instant) {
            return "I" + micros((Instant) given);
        }
        if (given instanceof LocalDateTime) {
            return "L" + micros(((LocalDateTime) given).toInstant(ZoneOffset.UTC));
        }
        if (given instanceof java.util.UUID) {
            return "U" + given;
        }
        if (given instanceof Iterable) {
            StringJoiner items = new StringJoiner(",", "[", "]");
            for (Object item : (Iterable<?>) given) {
                items.add(shown(item));
            }
            return items.toString();
        }
        if (given instanceof Map || given instanceof IndexedRecord) {
            return entries(given);
        }
        return text(given);
    }

    /** Fails for days that Python's dates cannot be. */
    static long checked(long day) {
        if (day < FIRST || day > LAST) {
            throw new IllegalArgumentException("outside the range of Python");
        }
        return day;
    }

    static long micros(Instant given) {
        checked(Math.floorDiv(given.getEpochSecond(), 86400));
        return given.getEpochSecond() * 1_000_000 + given.getNano() / 1000;
    }

    static String entries(Object given) throws Exception {
        TreeMap<String, Object> found = new TreeMap<>();
        if (given instanceof Map) {
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) given).entrySet()) {
                found.put(text(entry.getKey()), entry.getValue());
            }
        } else {
            for (Schema.Field field : ((IndexedRecord) given).getSchema().getFields()) {
                found.put(text(field.name()), ((IndexedRecord) given).get(field.pos()));
            }
        }
        StringJoiner items = new StringJoiner(",", "{", "}");
        for (Map.Entry<String, Object> entry : found.entrySet()) {
            items.add(entry.getKey() + ":" + shown(entry.getValue()));
        }
        return items.toString();
    }

    /** Fails for text that is not UTF-8, which Java replaces when it is asked for characters. */
    static String text(Object given) throws Exception {
        byte[] bytes = given instanceof org.apache.avro.util.Utf8
            ? java.util.Arrays.copyOf(((org.apache.avro.util.Utf8) given).getBytes(),
                ((org.apache.avro.util.Utf8) given).getByteLength())
            : given.toString().getBytes(StandardCharsets.UTF_8);
        StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes));
        return "s" + HEX.formatHex(bytes);
    }
}
