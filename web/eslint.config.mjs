// What prettier and tsc do not see. The rules of hooks hold for Preact as they do for React; which values a hook
// depends on is said by hand, because the page's stores and signals never change.
import hooks from "eslint-plugin-react-hooks";
import { defineConfig } from "eslint/config";
import typescript from "typescript-eslint";

export default defineConfig(
  { ignores: ["node_modules"] },
  {
    files: ["src/**/*.{ts,tsx}", "test/**/*.ts"],
    extends: [typescript.configs.recommendedTypeChecked],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    plugins: { "react-hooks": hooks },
    rules: {
      "react-hooks/rules-of-hooks": "error",
      eqeqeq: ["error", "smart"],
      "no-console": "error",
      "@typescript-eslint/no-base-to-string": "off", // what the server sends is text or a number wherever it is shown
    },
  },
  {
    files: ["test/**"], // node's runner awaits tests; vectors are what Python wrote
    extends: [typescript.configs.disableTypeChecked],
    rules: { "@typescript-eslint/no-explicit-any": "off" },
  },
);
