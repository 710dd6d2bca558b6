// A delegation token of Kafka's own admin client: java DelegationToken.java BOOTSTRAP MECHANISM JAAS_ENTRY
//
// Logs in over SASL_PLAINTEXT and prints the token's id and its HMAC in base 64, on one line.

import java.util.Map;
import org.apache.kafka.clients.admin.Admin;

public class DelegationToken {
    public static void main(String[] args) throws Exception {
        Map<String, Object> options = Map.of(
            "bootstrap.servers", args[0],
            "security.protocol", "SASL_PLAINTEXT",
            "sasl.mechanism", args[1],
            "sasl.jaas.config", args[2]);
        try (Admin admin = Admin.create(options)) {
            var token = admin.createDelegationToken().delegationToken().get();
            System.out.println(token.tokenInfo().tokenId() + " " + token.hmacAsBase64String());
        }
    }
}
