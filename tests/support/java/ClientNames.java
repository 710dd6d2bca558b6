// The options and methods of Kafka's own consumers, and its error codes: java ClientNames.java
//
// Prints one line per option of ConsumerConfig: "option", its name, and its default, or "required". Then one line per
// public method of KafkaConsumer and KafkaShareConsumer: the class and the name. Then one line per error code: "error",
// the code, its name, and whether it is retriable.

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.List;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigDef.ConfigKey;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

public class ClientNames {
    public static void main(String[] args) {
        for (ConfigKey key : ConsumerConfig.configDef().configKeys().values()) {
            System.out.println("option\t" + key.name + "\t" + (key.hasDefault() ? key.defaultValue : "required"));
        }
        for (Class<?> client : List.of(KafkaConsumer.class, KafkaShareConsumer.class)) {
            TreeSet<String> names = new TreeSet<>();
            for (Method method : client.getDeclaredMethods()) {
                if (Modifier.isPublic(method.getModifiers())) {
                    names.add(method.getName());
                }
            }
            names.forEach(name -> System.out.println(client.getSimpleName() + "\t" + name));
        }
        for (Errors error : Errors.values()) {
            boolean retriable = error.exception() instanceof RetriableException;
            System.out.println("error\t" + error.code() + "\t" + error + "\t" + retriable);
        }
    }
}
