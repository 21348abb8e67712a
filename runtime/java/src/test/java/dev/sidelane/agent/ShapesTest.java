// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** What javac makes of loops: the same results with checks, and a check in every turn. */
class ShapesTest {
    private static final int TURNS = 50;

    private static final Class<?> CHECKED = checked();

    private static Class<?> checked() {
        try {
            GateTransformer transformer = new GateTransformer(Options.parse(""), CountingCheck.NAME);
            return Loader.transformed(transformer, Shapes.class, Class.forName("dev.sidelane.agent.Shapes$Chain"))
                    .loadClass(Shapes.class.getName());
        } catch (ClassNotFoundException e) {
            throw new LinkageError("no Shapes", e);
        }
    }

    static Stream<String> shapes() {
        return Arrays.stream(Shapes.class.getMethods())
                .filter(m -> m.getDeclaringClass() == Shapes.class)
                .map(Method::getName);
    }

    @ParameterizedTest
    @MethodSource("shapes")
    void sameResultAndACheckInEveryTurn(String shape) throws Exception {
        Object expected = Shapes.class.getMethod(shape, int.class).invoke(null, TURNS);
        CountingCheck.count = 0;
        assertEquals(expected, CHECKED.getMethod(shape, int.class).invoke(null, TURNS));
        assertTrue(CountingCheck.count >= TURNS - 1, "only " + CountingCheck.count + " checks");
    }
}
