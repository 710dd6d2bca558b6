// Encodes and decodes with Kafka's own wire code, one line in, one line out, for tests/integration/test_java_wire.py:
//
//   facts                               every API: key, versions, and per version header versions and throttling
//   write CLASS VERSION JSON            the bytes of a message, in hex
//   read CLASS VERSION HEX              the bytes of the message read from these bytes
//   request API VERSION ID CLIENT JSON  a whole request without its size: header and message
//
// CLASS is a generated class of org.apache.kafka.common.message, JSON is in the form of its converter, CLIENT is a
// client id or - for null. Responses start with "ok", or with "error" and the reason.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.StringJoiner;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.RequestHeader;

public class ProtocolDump {
    private static final String PACKAGE = "org.apache.kafka.common.message.";
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                out.println("ok " + respond(line));
            } catch (Exception e) {
                Throwable cause = e.getCause() == null ? e : e.getCause();
                out.println("error " + cause.toString().replace('\n', ' '));
            }
        }
    }

    private static String respond(String line) throws Exception {
        String[] words = line.split(" ", 4);
        switch (words[0]) {
            case "facts":
                return facts();
            case "write":
                return hex(parse(words[1], Short.parseShort(words[2]), words[3]), Short.parseShort(words[2]));
            case "read":
                return reread(words[1], Short.parseShort(words[2]), words.length > 3 ? words[3] : "");
            case "request":
                return request(line.split(" ", 6));
            default:
                throw new IllegalArgumentException("unknown word " + words[0]);
        }
    }

    private static Message parse(String name, short version, String json) throws Exception {
        Class<?> converter = Class.forName(PACKAGE + name + "JsonConverter");
        return (Message) converter.getMethod("read", JsonNode.class, short.class)
            .invoke(null, MAPPER.readTree(json), version);
    }

    private static String hex(Message message, short version) {
        return HEX.formatHex(bytes(MessageUtil.toByteBufferAccessor(message, version).buffer()));
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    private static String reread(String name, short version, String hex) throws Exception {
        Message message = (Message) Class.forName(PACKAGE + name).getConstructor().newInstance();
        ByteBuffer buffer = ByteBuffer.wrap(HEX.parseHex(hex));
        message.read(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining())
            throw new IllegalStateException(buffer.remaining() + " bytes left");
        return hex(message, version);
    }

    private static String request(String[] words) throws Exception {
        ApiKeys api = api(words[1]);
        short version = Short.parseShort(words[2]);
        String client = words[4].equals("-") ? null : words[4];
        RequestHeader header = new RequestHeader(api, version, client, Integer.parseInt(words[3]));
        return hex(header.data(), header.headerVersion())
            + hex(parse(words[1] + "RequestData", version, words[5]), version);
    }

    private static ApiKeys api(String name) {
        for (ApiKeys api : ApiKeys.values())
            if (api.messageType.name.equals(name))
                return api;
        throw new IllegalArgumentException("unknown API " + name);
    }

    // API KEY OLDEST LATEST then per version REQUEST_HEADER/RESPONSE_HEADER/THROTTLES; APIs separated by semicolons.
    private static String facts() throws Exception {
        StringJoiner all = new StringJoiner(";");
        for (ApiKeys api : ApiKeys.values()) {
            StringJoiner row = new StringJoiner(" ");
            row.add(api.messageType.name).add("" + api.id).add("" + api.oldestVersion()).add("" + api.latestVersion());
            for (short v = api.oldestVersion(); v <= api.latestVersion(); v++)
                row.add(api.requestHeaderVersion(v) + "/" + api.responseHeaderVersion(v) + "/" + throttles(api, v));
            all.add(row.toString());
        }
        return all.toString();
    }

    private static String throttles(ApiKeys api, short version) {
        try {
            Message empty = api.messageType.newResponse();
            ByteBuffer buffer = MessageUtil.toByteBufferAccessor(empty, version).buffer();
            return "" + AbstractResponse.parseResponse(api, new ByteBufferAccessor(buffer), version)
                .shouldClientThrottle(version);
        } catch (Exception e) {
            return "unknown";
        }
    }
}
