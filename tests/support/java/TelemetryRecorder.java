// A plugin of a broker that writes what clients push by KIP-714 to a file: one line of JSON for each push.
//
// The broker's properties: metric.reporters=TelemetryRecorder, telemetry.recorder.file=PATH. The metrics are parsed by
// the classes of OpenTelemetry in Kafka's own jar. Numbers are written as text, because JSON has no NaN. The interfaces
// are those of all brokers since 3.7; Kafka 4.2 has added others, and deprecated these.

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;
import org.apache.kafka.shaded.io.opentelemetry.proto.common.v1.KeyValue;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.Metric;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.MetricsData;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.NumberDataPoint;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.ResourceMetrics;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.ScopeMetrics;

public class TelemetryRecorder implements MetricsReporter, ClientTelemetry, ClientTelemetryReceiver {
    private Path file;

    @Override
    public void configure(Map<String, ?> configs) {
        file = Path.of((String) configs.get("telemetry.recorder.file"));
    }

    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return this;
    }

    @Override
    public synchronized void exportMetrics(AuthorizableRequestContext context, ClientTelemetryPayload payload) {
        try {
            StringJoiner metrics = new StringJoiner(",", "[", "]");
            StringJoiner resource = new StringJoiner(",", "{", "}");
            for (ResourceMetrics each : MetricsData.parseFrom(payload.data()).getResourceMetricsList()) {
                if (metrics.length() == 2) {
                    each.getResource().getAttributesList().forEach(label -> resource.add(pair(label)));
                }
                for (ScopeMetrics scope : each.getScopeMetricsList()) {
                    scope.getMetricsList().forEach(metric -> add(metric, metrics));
                }
            }
            String line = "{\"id\":" + text(payload.clientInstanceId().toString())
                + ",\"client\":" + text(context.clientId())
                + ",\"terminating\":" + payload.isTerminating()
                + ",\"type\":" + text(payload.contentType())
                + ",\"resource\":" + resource
                + ",\"metrics\":" + metrics + "}\n";
            Files.write(file, line.getBytes(StandardCharsets.UTF_8), StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static void add(Metric metric, StringJoiner metrics) {
        boolean sum = metric.hasSum();
        List<NumberDataPoint> points = sum ? metric.getSum().getDataPointsList() : metric.getGauge().getDataPointsList();
        String kind = sum ? metric.getSum().getAggregationTemporality() + "," + metric.getSum().getIsMonotonic() : "GAUGE";
        for (NumberDataPoint point : points) {
            StringJoiner labels = new StringJoiner(",", "{", "}");
            point.getAttributesList().forEach(label -> labels.add(pair(label)));
            String value = point.hasAsInt() ? String.valueOf(point.getAsInt()) : String.valueOf(point.getAsDouble());
            metrics.add("{\"name\":" + text(metric.getName())
                + ",\"kind\":" + text(kind)
                + ",\"integer\":" + point.hasAsInt()
                + ",\"value\":" + text(value)
                + ",\"time\":" + point.getTimeUnixNano()
                + ",\"start\":" + point.getStartTimeUnixNano()
                + ",\"labels\":" + labels + "}");
        }
    }

    private static String pair(KeyValue label) {
        return text(label.getKey()) + ":" + text(label.getValue().getStringValue());
    }

    private static String text(String value) {
        return "\"" + value.replace("\\", "\\\\").replace("\"", "\\\"") + "\"";
    }

    @Override
    public void init(List<KafkaMetric> metrics) {
    }

    @Override
    public void metricChange(KafkaMetric metric) {
    }

    @Override
    public void metricRemoval(KafkaMetric metric) {
    }

    @Override
    public void close() {
    }
}
